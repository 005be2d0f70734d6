-- Bad input: each with its SQLSTATE, message, detail and hint.
\x on
\t on
\pset border 0

-- Empty and overlong names, by bytes.
SELECT * FROM refused($$SELECT ckpt_put('', '{}')$$);
SELECT * FROM refused($$SELECT ckpt_put(repeat('x', 513), '{}')$$);
SELECT * FROM refused($$SELECT ckpt_put(repeat('é', 256) || 'x', '{}')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{}', checkpoint_ns => repeat('n', 1025))$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{}', checkpoint_id => '')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{}', checkpoint_id => repeat('i', 256))$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{}', next => ARRAY[''])$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', '', '[]')$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '[]', task_path => repeat('p', 4097))$$);
SELECT * FROM refused($$SELECT ckpt_channel('t', '')$$);
SELECT * FROM refused($$SELECT msg_id('t', '', 'x')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('t', '[]', turn => repeat('r', 256))$$);
SET checkpointer.tenant = '0123456789012345678901234567890123456789012345678901234567890123';
SELECT * FROM refused($$SELECT ckpt_put('t', '{}')$$);
RESET checkpointer.tenant;

-- The longest names are taken, all at once, and fit their index.
\t off
SELECT ckpt_put(repeat('é', 256), format('{%s: 1}', to_json(repeat('c', 255)))::json, next => ARRAY[repeat('n', 255)],
                checkpoint_ns => repeat('s', 1024), checkpoint_id => repeat('i', 255)) = repeat('i', 255) AS put,
       ckpt_put_writes(repeat('é', 256), repeat('i', 255), repeat('t', 255), format('[[%s, 1]]', to_json(repeat('c', 255)))::json,
                       checkpoint_ns => repeat('s', 1024), task_path => repeat('p', 4096)) AS writes,
       ckpt_delete_thread(repeat('é', 256)) AS deleted;
\t on

-- States.
SELECT * FROM refused($$SELECT ckpt_put('t', '[]')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', 'null')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{"a": 1, "b": 2, "a": 3}')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{"m": [0, {"text": "x\ud83d"}]}')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{"": 1}')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{"a\u0000b": 1}')$$);
SELECT * FROM refused(format($$SELECT ckpt_put('t', '{"%s": 1}')$$, repeat('k', 256)));
SELECT * FROM refused($$SELECT ckpt_put('t', '{}', metadata => '[1]')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{}', metadata => '{"u": ["\udc00"]}')$$);

-- Unknown threads and checkpoints.
SELECT * FROM refused($$SELECT ckpt_state('nowhere')$$);
SELECT * FROM refused($$SELECT ckpt_channel('nowhere', 'c')$$);
SELECT * FROM refused($$SELECT ckpt_state('nowhere', 'c1')$$);
SELECT * FROM refused($$SELECT ckpt_state('nowhere', checkpoint_ns => 'child')$$);
SELECT * FROM refused($$SELECT ckpt_apply_writes('nowhere')$$);
SELECT * FROM refused($$SELECT ckpt_apply_writes('nowhere', checkpoint_id => 'c1')$$);
SELECT * FROM refused($$SELECT ckpt_fork('nowhere', 'c1')$$);
SELECT * FROM refused($$SELECT ckpt_put('t', '{}', parent_checkpoint_id => 'c1')$$);

-- Writes of another form.
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '[["a"]]')$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '{}')$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '"x"')$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '[["a", 1], [2, 3]]')$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '[["a", 1], ["b", 2, 3]]')$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '[["", 1]]')$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '[["a", {"x": "\udead"}]]')$$);
SELECT * FROM refused($$SELECT ckpt_put_writes('t', 'c', 'a', '[]', on_conflict => 'merge')$$);

-- A task's other writes; writes on a folded checkpoint; tasks that have not finished.
SELECT ckpt_put('w', '{"n": "text", "o": {}}', checkpoint_id => 'base', next => '{a,b,c}');
SELECT ckpt_put_writes('w', 'base', 'a', '[["n", 1], ["o", 2]]');
SELECT * FROM refused($$SELECT ckpt_put_writes('w', 'base', 'a', '[["n", 1]]')$$);
SELECT ckpt_put_writes('w', 'base', 'b', '[["__error__", "boom"]]');
SELECT * FROM refused($$SELECT ckpt_apply_writes('w')$$);
SELECT * FROM refused($$SELECT ckpt_apply_writes('w', tasks => '{a,b}')$$);

-- A failed task runs again; reducers that do not fit leave everything as it was.
SELECT ckpt_put_writes('w', 'base', 'b', '[["n", 2]]');
SELECT ckpt_put_writes('w', 'base', 'c', '[]');
SELECT * FROM refused($$SELECT ckpt_apply_writes('w', reducers => '{"n": "sum"}')$$);
SELECT * FROM refused($$SELECT ckpt_apply_writes('w', reducers => '{"o": "append"}')$$);
SELECT * FROM refused($$SELECT ckpt_apply_writes('w', reducers => '{"o": "merge"}')$$);
SELECT * FROM refused($$SELECT ckpt_apply_writes('w', reducers => '{"n": "concat"}')$$);
SELECT * FROM refused($$SELECT ckpt_apply_writes('w', reducers => '{"n": 1}')$$);
SELECT * FROM refused($$SELECT ckpt_apply_writes('w', reducers => '["sum"]')$$);
SELECT checkpoint_id, todo FROM ckpt_resume('w');
SELECT ckpt_apply_writes('w', reducers => '{"n": "replace"}') <> 'base';
SELECT ckpt_state('w');
SELECT * FROM refused(format($$SELECT ckpt_put_writes('w', 'base', 'd', '[["n", 9]]')$$)) r WHERE r.detail ~ '^Its writes were folded into checkpoint "[0-9a-f-]{36}"\.$' IS NOT TRUE;
SELECT r.code, r.message, r.hint FROM refused($$SELECT ckpt_put_writes('w', 'base', 'd', '[["n", 9]]')$$) r;
SELECT r.code FROM refused($$SELECT ckpt_put_writes('w', 'base', 'a', '[["n", 9]]')$$) r;
SELECT ckpt_put_writes('w', 'base', 'a', '[["n", 1], ["o", 2]]');
SELECT ckpt_apply_writes('w') <> 'base';
SELECT ckpt_apply_writes('w', checkpoint_id => 'base') = (SELECT checkpoint_id FROM ckpt_latest('w'));

-- The fence.
SELECT ckpt_put('f', '{}', checkpoint_id => 'f1', expected_latest => '');
SELECT * FROM refused($$SELECT ckpt_put('f', '{}', checkpoint_id => 'f2', expected_latest => '')$$);
SELECT * FROM refused($$SELECT ckpt_put('f', '{}', checkpoint_id => 'f2', expected_latest => 'f0')$$);
SELECT * FROM refused($$SELECT ckpt_put('unborn', '{}', expected_latest => 'f0')$$);
SELECT ckpt_put('f', '{}', checkpoint_id => 'f2', expected_latest => 'f1');

-- Messages: one bad among good ones stores nothing.
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '[{"role": "user", "content": "1"}, {"content": "2"}, {"role": "user", "content": "3"}]')$$);
SELECT count(*) FROM ckpt_messages('m');
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '{"role": "user", "content": "1"}')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '["hi"]')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '[{"role": "user", "id": 5}]')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '[{"role": "user", "ephemeral": "yes"}]')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '[{"role": "user", "content": "\ud800"}]')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '[{"role": "user", "content": [{"a": 1, "a": 2}]}]')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '[{"role": "user", "n": 1e9999999999999999999}]')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '[{"role": "user", "id": "x", "content": "1"}, {"role": "user", "id": "x", "content": "2"}]')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('m', '[]', on_conflict => 'update')$$);
SELECT * FROM refused($$SELECT ckpt_rewind('m', -1)$$);
SELECT * FROM refused($$SELECT msg_id('t', 'user', '{"a": 1, "a": 2}'::json)$$);

-- Windows, limits, filters.
SELECT * FROM refused($$SELECT * FROM ckpt_window('m', max_tokens => 0)$$);
SELECT * FROM refused($$SELECT * FROM ckpt_window('m', max_tokens => 3, preamble => '{"role": "system", "content": "one two three four"}')$$);
SELECT * FROM refused($$SELECT ckpt_load('{"messages": [{"role": "user"}, {"content": "no role"}]}')$$);
SELECT * FROM refused($$SELECT ckpt_load('{"conversation": "t"}')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_window('m', size => -1)$$);
SELECT * FROM refused($$SELECT * FROM ckpt_window('m', current => '"hi"')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_window('m', preamble => '[{"content": "x"}]')$$);
SELECT * FROM refused($$SELECT * FROM ckpt_history('m', max_rows => -1)$$);
SELECT * FROM refused($$SELECT * FROM ckpt_list(max_rows => -5)$$);
SELECT * FROM refused($$SELECT * FROM ckpt_list(filter => '[1]')$$);

-- Tokens, rules, summaries.
SELECT * FROM refused($$SELECT ckpt_tokens('a', 'p50k_base')$$);
SELECT * FROM refused($$INSERT INTO checkpoint_markup (name, kind, pattern) VALUES ('bad', 'pattern', '(')$$);
SELECT * FROM refused($$INSERT INTO checkpoint_markup (name, kind, pattern) VALUES ('bad', 'pattern', 'x*')$$);
SELECT * FROM refused($$INSERT INTO checkpoint_markup (name, kind, pattern) VALUES ('bad', 'html', 'b')$$);
SELECT * FROM refused($$INSERT INTO checkpoint_markup (name, kind, pattern, keep) VALUES ('bad', 'tag', 'b', 'replacement')$$);
SELECT * FROM refused($$UPDATE checkpoint_markup SET pattern = 'b' WHERE name = 'cite'$$);
SELECT * FROM refused($$DELETE FROM checkpoint_markup WHERE name = 'cite'$$);
SELECT * FROM refused($$TRUNCATE checkpoint_markup$$);
SELECT * FROM refused($$SELECT * FROM ckpt_summary_due('m', every => 0)$$);
SELECT * FROM refused($$SELECT * FROM ckpt_summary_due('m', lease => '0')$$);
SELECT * FROM refused($$SELECT ckpt_put_summary('nowhere', 1, 'short')$$);
SELECT count(*) FROM ckpt_append('s', '[{"role": "user", "content": "1"}]');
SELECT * FROM refused($$SELECT ckpt_put_summary('s', 2, 'short')$$);
SELECT * FROM refused($$SELECT ckpt_put_summary('s', 1, ' ')$$);
SELECT * FROM refused($$SELECT ckpt_put_summary('s', 1, 'short', '-1 day')$$);
SELECT * FROM refused($$SELECT ckpt_put_summary('s', 1, 'short', edits => 7)$$);

-- Roles.
SELECT * FROM refused($$SELECT ckpt_grant('no such role', 'read')$$);
SELECT * FROM refused($$SELECT ckpt_grant(current_user, 'admin')$$);
SELECT * FROM refused($$SELECT ckpt_revoke('no such role')$$);

-- Sizes are looked at before the content.
SELECT * FROM refused($$SELECT ckpt_put('big', ('{"a": "' || repeat('x', 300 * 1024 * 1024) || '"}')::json)$$);
SET checkpointer.max_json_size = '1kB';
SELECT * FROM refused($$SELECT ckpt_put_writes('big', 'c', 'a', ('[["a", "' || repeat('x', 1024) || '"]]')::json)$$);
SELECT * FROM refused($$SELECT * FROM ckpt_append('big', ('[{"role": "user", "content": "' || repeat('x', 1024) || '"}]')::json)$$);
RESET checkpointer.max_json_size;
SELECT r.code FROM refused($$SET checkpointer.max_json_size = 0$$) r;
SELECT r.code FROM refused($$SET checkpointer.no_such_setting = 1$$) r;

-- JSON nested 10,000 deep goes in and comes out, or is refused by Postgres's own reader of json; the server lives on.
SELECT r.code IN ('none', '54001') AS taken_or_refused FROM refused($$
    SELECT ckpt_put('deep', ('{"a": ' || repeat('[', 10000) || repeat(']', 10000) || '}')::json, checkpoint_id => 'd1');
    SELECT * FROM ckpt_append('deep', ('[{"role": "user", "content": ' || repeat('{"b": [', 5000) || repeat(']}', 5000) || '}]')::json);
    SELECT ckpt_put_writes('deep', 'd1', 'a', ('[["a", ' || repeat('[', 10000) || repeat(']', 10000) || ']]')::json);
    SELECT ckpt_apply_writes('deep', reducers => '{"a": "union"}')
$$) r;
SELECT count(*) FROM ckpt_list('nowhere');
