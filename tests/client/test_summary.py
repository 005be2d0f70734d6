"""Summaries: one worker gets the job, and no window shows one that is not true of the log any more."""

import json

import pytest

from support import at_once, refused

NOON = "2030-06-01 12:00:00+00"


def set_clock(calls, time):
    calls.sql("SELECT set_config('checkpointer.clock', %s, false)", time)


def fill(calls, thread, turns, first=1):
    for turn in range(first, first + turns):
        exchange = [{"role": "user", "content": f"question {turn}"}, {"role": "assistant", "content": f"answer {turn}"}]
        calls.rows("ckpt_append", thread, json.dumps(exchange), f"turn {turn}")


def due(calls, thread, size=4, **options):
    return calls.row("ckpt_summary_due", thread, size, **options)


def put(calls, thread, job, summary, **options):
    calls.value("ckpt_put_summary", thread, job.message_count, summary, edits=job.edits, **options)


def shown(calls, thread, size=4):
    first = calls.rows("ckpt_window", thread, size)[0]
    return first.content if first.kind == "summary" else None


def texts(job):
    return [message["content"] for message in json.loads(job.messages)]


def test_nothing_is_due_while_everything_is_shown(calls, thread):
    assert due(calls, thread) is None
    fill(calls, thread, 3)
    assert due(calls, thread) is None
    assert shown(calls, thread) is None


def test_the_job_is_just_what_is_new(calls, thread):
    fill(calls, thread, 6)
    job = due(calls, thread)
    # The final turn and four messages before it are shown.
    assert (job.message_count, job.previous_count, job.previous_summary) == (6, 0, None)
    assert texts(job) == [text for turn in (1, 2, 3) for text in (f"question {turn}", f"answer {turn}")]
    put(calls, thread, job, "Three questions.")
    assert due(calls, thread) is None
    assert shown(calls, thread) == "Three questions."
    fill(calls, thread, 2, first=7)
    job = due(calls, thread)
    assert (job.message_count, job.previous_count, job.previous_summary) == (10, 6, "Three questions.")
    assert texts(job) == ["question 4", "answer 4", "question 5", "answer 5"]


def test_until_a_fresh_one_comes_the_older_one_and_an_extract_stand_there(calls, thread):
    fill(calls, thread, 5)
    extract = "[4 earlier messages are not shown. In them the user said, the latest last:\n- \"question 1\"\n- \"question 2\"]"
    assert shown(calls, thread) == extract
    put(calls, thread, due(calls, thread), "Two questions.")
    fill(calls, thread, 1, first=6)
    rest = "[2 earlier messages are not shown. In them the user said, the latest last:\n- \"question 3\"]"
    assert shown(calls, thread) == f"Two questions.\n\n{rest}"
    put(calls, thread, due(calls, thread), "Three questions.")
    assert shown(calls, thread) == "Three questions."
    # A smaller window leaves out more, a larger one less.
    assert shown(calls, thread, 2).startswith("Three questions.\n\n[2 earlier messages")
    assert shown(calls, thread, 6) == "Three questions."
    assert shown(calls, thread, 10) is None


def test_a_summary_is_due_every_so_many_messages(calls, thread):
    fill(calls, thread, 5)
    assert due(calls, thread, every=5) is None
    job = due(calls, thread, every=4)
    assert job.message_count == 4


def test_sixty_four_ask_at_once_and_one_gets_the_job(sessions, thread):
    clients = sessions(64)
    fill(clients[0], thread, 6)
    jobs = at_once([lambda client=client: due(client, thread) for client in clients])
    assert not [job for job in jobs if isinstance(job, Exception)]
    assert [job.message_count for job in jobs if job is not True and job is not None] == [6]


@pytest.mark.needs_session
def test_a_lease_that_ran_out_is_taken_over(calls, thread):
    fill(calls, thread, 6)
    set_clock(calls, NOON)
    first = due(calls, thread, lease="10 minutes")
    assert str(first.lease_until) == "2030-06-01 12:10:00+00:00"
    set_clock(calls, "2030-06-01 12:09:59+00")
    assert due(calls, thread) is None
    set_clock(calls, "2030-06-01 12:10:00+00")
    second = due(calls, thread)
    assert (second.message_count, second.messages) == (first.message_count, first.messages)
    # Both are true of the same messages: whoever comes last stands.
    put(calls, thread, second, "By the second.")
    put(calls, thread, first, "By the first.")
    assert shown(calls, thread) == "By the first."


def test_a_summary_that_never_comes_leaves_everything_as_it_was(calls, thread):
    fill(calls, thread, 6)
    before = calls.rows("ckpt_window", thread, 4), calls.rows("ckpt_messages", thread)
    assert due(calls, thread)
    fill(calls, thread, 1, first=7)
    calls.value("ckpt_rewind", thread, 12)
    assert (calls.rows("ckpt_window", thread, 4), calls.rows("ckpt_messages", thread)) == before


@pytest.mark.needs_session
def test_a_summary_counts_until_its_time_is_over(calls, thread):
    fill(calls, thread, 6)
    set_clock(calls, NOON)
    put(calls, thread, due(calls, thread), "Three questions.", ttl="1 day")
    set_clock(calls, "2030-06-02 11:59:59+00")
    assert shown(calls, thread) == "Three questions."
    assert due(calls, thread) is None
    set_clock(calls, "2030-06-02 12:00:00+00")
    assert shown(calls, thread).startswith("[6 earlier messages")
    job = due(calls, thread)
    assert (job.message_count, job.previous_count, job.previous_summary) == (6, 0, None)
    put(calls, thread, job, "Again.")
    set_clock(calls, "2130-01-01 00:00:00+00")
    assert shown(calls, thread) == "Again."


def edit(calls, thread):
    [row, *_] = [row for row in calls.rows("ckpt_messages", thread) if row.content == "answer 2"]
    message = [{"id": row.msg_id, "role": "assistant", "content": "another answer"}]
    calls.rows("ckpt_append", thread, json.dumps(message), on_conflict="replace")


def rewind(calls, thread):
    calls.value("ckpt_rewind", thread, 3)
    fill(calls, thread, 5, first=3)


@pytest.mark.parametrize("change", [edit, rewind])
def test_after_a_change_of_what_it_covers_a_summary_is_gone(calls, thread, change):
    fill(calls, thread, 6)
    put(calls, thread, due(calls, thread), "Of what was there.")
    assert shown(calls, thread) == "Of what was there."
    change(calls, thread)
    assert "Of what was there." not in shown(calls, thread)
    assert due(calls, thread).previous_summary is None


@pytest.mark.parametrize("knows_edits", [True, False])
@pytest.mark.parametrize("change", [edit, rewind])
def test_a_summary_of_messages_that_changed_meanwhile_is_refused(calls, thread, change, knows_edits):
    fill(calls, thread, 6)
    job = due(calls, thread)
    change(calls, thread)
    options = {"edits": job.edits} if knows_edits else {}
    if change is edit or knows_edits:
        with refused("40001"):
            calls.value("ckpt_put_summary", thread, job.message_count, "Of what was there.", **options)
        assert "Of what was there." not in shown(calls, thread)
    # The job is there again at once, although the lease had not run out.
    again = due(calls, thread)
    assert again.edits == job.edits + 1
    put(calls, thread, again, "Of what is there.")
    assert "Of what is there." in shown(calls, thread)


def test_a_change_of_what_it_does_not_cover_leaves_a_summary(calls, thread):
    fill(calls, thread, 6)
    job = due(calls, thread)
    calls.value("ckpt_rewind", thread, 10)
    fill(calls, thread, 1, first=7)
    put(calls, thread, job, "Three questions.")
    calls.value("ckpt_rewind", thread, 10)
    assert due(calls, thread) is None
    fill(calls, thread, 1, first=8)
    assert shown(calls, thread) == "Three questions."


def test_an_older_summary_is_there_after_a_rewind(calls, thread):
    fill(calls, thread, 5)
    put(calls, thread, due(calls, thread), "Older.")
    fill(calls, thread, 4, first=6)
    put(calls, thread, due(calls, thread), "Newer.")
    assert shown(calls, thread) == "Newer."
    calls.value("ckpt_rewind", thread, 10)
    assert shown(calls, thread) == "Older."


def test_how_many_are_kept_does_not_grow(calls, thread):
    for turn in range(1, 21):
        fill(calls, thread, 1, first=turn)
        job = due(calls, thread)
        if job:
            put(calls, thread, job, f"Up to {job.message_count}.")
    assert calls.count("checkpoint_summaries", thread) == 4


def test_rewound_numbers_do_not_confuse_the_count(calls, thread):
    """A seq is not used again, so after rewinds it is ahead of the message count."""
    for turn in range(8):
        fill(calls, thread, 2, first=10 * turn)
        calls.value("ckpt_rewind", thread, calls.rows("ckpt_messages", thread)[-3].seq)
    fill(calls, thread, 2, first=100)
    seqs = [row.seq for row in calls.rows("ckpt_messages", thread)]
    counts = calls.sql("SELECT m.message_count FROM @s.checkpoint_messages m WHERE m.thread_id = %s ORDER BY m.seq", thread)
    assert seqs[-1] > len(seqs)
    assert [row[0] for row in counts] == list(range(1, len(seqs) + 1))
    for count in range(1, len(seqs) + 1):
        calls.value("ckpt_put_summary", thread, count, f"Up to {count}.")
        [(seq,)] = calls.sql("SELECT max(s.seq) FROM @s.checkpoint_summaries s WHERE s.thread_id = %s", thread)
        assert seq == seqs[count - 1]


def test_many_messages_are_summarised_in_several_jobs(calls, thread):
    exchanges = [{"role": role, "content": f"{role} {turn}"} for turn in range(700) for role in ("user", "assistant")]
    calls.rows("ckpt_append", thread, json.dumps(exchanges))
    covered = []
    while job := due(calls, thread):
        assert len(texts(job)) <= 500
        assert texts(job)[0] == f"user {job.previous_count // 2}"
        assert texts(job)[-1] == f"assistant {job.message_count // 2 - 1}"
        covered.append(job.message_count)
        put(calls, thread, job, f"Up to {job.message_count}.")
    assert covered == [500, 1000, 1394]


def test_markup_is_not_summarised(calls, thread):
    fill(calls, thread, 4)
    message = [{"id": "m", "role": "assistant", "content": "<think>secret</think>It rains[1]."}]
    calls.value("ckpt_rewind", thread, 1)
    calls.rows("ckpt_append", thread, json.dumps(message))
    fill(calls, thread, 3, first=5)
    assert texts(due(calls, thread)) == ["question 1", "It rains."]


def test_deleting_a_thread_deletes_its_summaries(calls, thread):
    fill(calls, thread, 6)
    put(calls, thread, due(calls, thread), "Three questions.")
    calls.value("ckpt_delete_thread", thread)
    assert calls.count("checkpoint_summaries", thread) == 0
    fill(calls, thread, 6)
    assert shown(calls, thread).startswith("[6 earlier messages")


def test_yes_said_in_two_turns_stays_twice_and_a_turn_sent_again_stays_once(sessions, thread):
    clients = sessions(8)
    clients[0].rows("ckpt_append", thread, '[{"role": "user", "content": "yes"}]', "turn 1")
    turn = (thread, '[{"role": "user", "content": "yes"}, {"role": "assistant", "content": "Good."}]', "turn 2")

    def five_times(client):
        for _ in range(5):
            client.rows("ckpt_append", *turn)

    assert at_once([lambda client=client: five_times(client) for client in clients]) == [None] * 8
    assert [row.content for row in clients[0].rows("ckpt_messages", thread)] == ["yes", "yes", "Good."]


def test_a_client_that_sends_its_whole_history_each_time_adds_what_is_new(calls, thread):
    history = []
    for turn in range(10):
        history += [{"role": "user", "content": f"question {turn}"}, {"role": "assistant", "content": f"answer {turn}"}]
        rows = calls.rows("ckpt_append", thread, json.dumps(history))
        assert [row.inserted for row in rows] == [False] * 2 * turn + [True] * 2
    assert [row.content for row in calls.rows("ckpt_messages", thread)] == [message["content"] for message in history]
