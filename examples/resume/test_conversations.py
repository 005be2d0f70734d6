"""python -m unittest test_conversations: what is read, what is refused and why, and that texts are kept."""

import json
import tempfile
import unittest
from pathlib import Path

import conversations
from conversations import elements, members, parse, strict

ASK = '{"role": "user", "content": "q"}'
CALL = '{"role": "assistant", "content": null, "tool_calls": [%s]}'
ONE = '{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}'
TWO = ONE.replace('"a"', '"b"')
RESULT = '{"role": "tool", "tool_call_id": "a", "content": "r"}'


def line(*messages: str) -> str:
    return '{"id": "x", "messages": [%s]}' % ", ".join(messages)


class Reading(unittest.TestCase):
    def test_texts_are_kept(self):
        texts = ['{"role":"user",  "content" : "\\u0000\\ud83d\\ude42"}', '{"n": [1e16, -0.0, 1.50], "role": "user"}']
        self.assertEqual(parse(line(*texts)).messages, texts)
        self.assertEqual(elements(' [ 1.0 ,[ ] , {"a" : "]"} ] '), ["1.0", "[ ]", '{"a" : "]"}'])
        self.assertEqual(elements("[]"), [])
        self.assertEqual(members('{ "a" : 1E2 ,"b":{}}'), {"a": "1E2", "b": "{}"})
        self.assertEqual(members("{ }"), {})

    def test_an_id_may_be_a_number(self):
        self.assertEqual(parse('{"id": 17, "messages": [%s]}' % ASK).id, "17")

    def test_numbers_compare_by_their_digits(self):
        self.assertNotEqual(strict("1.0"), strict("1.00"))
        self.assertNotEqual(strict("1"), strict('"1"'))
        self.assertEqual(strict('{"a": 1}'), strict('{"a":1}'))

    def test_steps_have_the_order_of_the_calls(self):
        second = RESULT.replace('"a"', '"b"')
        talk = parse(line(ASK, CALL % f"{ONE}, {TWO}", second, RESULT))
        self.assertEqual([call.task for call in talk.calls], ["1/a", "1/b"])
        self.assertEqual([call.result for call in talk.calls], [RESULT, second])

    def test_turns_begin_at_user_messages(self):
        system = '{"role": "system", "content": "s"}'
        talk = parse(line(system, ASK, CALL % ONE, RESULT, ASK))
        turns = [(turn.name, len(turn.messages), turn.steps) for turn in talk.turns]
        self.assertEqual(turns, [("turn-1", 4, 1), ("turn-2", 1, 1)])

    def test_refused(self):
        for text, reason in [
            ("[]", "not a JSON object"),
            ("{", "Expecting property name"),
            ('{"messages": [%s]}' % ASK, "id must be"),
            ('{"id": "x", "messages": []}', "an empty one"),
            ('{"id": "x", "messages": {}}', "no list"),
            ('{"id": "x", "id": "y", "messages": [%s]}' % ASK, "key twice"),
            (line('{"role": "user", "content": "\\ud83d"}'), "lone surrogate"),
            (line('{"role": "user", "content": NaN}'), "NaN is not JSON"),
            (line('"hello"'), "message 1: not an object"),
            (line('{"content": "q"}'), "message 1: role is None"),
            (line('{"role": "human", "content": "q"}'), "role is 'human'"),
            (line('{"role": "user", "ephemeral": true}'), "ephemeral"),
            (line('{"role": "user", "id": "m"}', '{"role": "user", "id": "m"}'), "message 2: id 'm' a second time"),
            (line(RESULT), "message 1: a tool result, but no call"),
            (line(ASK, RESULT), "message 2: a tool result, but no call"),
            (line(CALL % ONE), "message 1: the call 'a' has no result"),
            (line(CALL % ONE, ASK, RESULT), "the call 'a' has no result"),
            (line(CALL % ONE, RESULT, RESULT), "message 3: result of 'a', which is no open call"),
            (line(CALL % TWO, RESULT), "message 2: result of 'a'"),
            (line(CALL % f"{ONE}, {ONE}", RESULT), "two calls with the id 'a'"),
            (line(CALL % '{"id": "a"}', RESULT), "without id and function"),
            (line(CALL % ONE.replace('"a"', '"\\u0000"'), RESULT), "without U+0000"),
            (line('{"role": "user", "tool_calls": [%s]}' % ONE), "in an assistant message"),
        ]:
            with self.subTest(text=text), self.assertRaises(ValueError) as caught:
                parse(text)
            self.assertIn(reason, str(caught.exception))

    def test_a_file_is_refused_with_all_its_bad_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "input.jsonl"
            deep = '{"id": "d", "messages": [%s]}' % ("[" * 100_000)
            file.write_bytes("\n".join([line(ASK), "", "nonsense", line(ASK), deep]).encode() + b"\n\xff\n")
            with self.assertRaises(conversations.Refused) as caught:
                conversations.read(str(file))
            numbers = [reason.split(":")[0] for reason in caught.exception.reasons]
            self.assertEqual(numbers, ["line 3", "line 4", "line 5", "line 6"])
            file.write_bytes(b"\n")
            with self.assertRaises(conversations.Refused):
                conversations.read(str(file))

    def test_the_samples_have_what_breaks_stores(self):
        path = Path(__file__).with_name("samples.jsonl")
        text = path.read_text(encoding="utf-8")
        for needle in ["\\u0000", str(2**70), "1e16", "-0.0", "\\ud83d\\ude42"]:
            self.assertIn(needle, text)
        talks = conversations.read(str(path))
        self.assertTrue(any(len(step) > 1 for talk in talks for step in talk.steps))
        for talk in talks:
            self.assertEqual([json.loads(text) for text in talk.messages], json.loads(talk.line)["messages"])


if __name__ == "__main__":
    unittest.main()
