-- What is missing: no rows, NULL, or P0002 (see errors.sql); and a stored null is not a missing channel.
SELECT count(*) FROM ckpt_latest('nowhere');
SELECT count(*) FROM ckpt_resume('nowhere');
SELECT count(*) FROM ckpt_history('nowhere');
SELECT count(*) FROM ckpt_list('nowhere');
SELECT count(*) FROM ckpt_messages('nowhere');
SELECT count(*) FROM ckpt_window('nowhere');
SELECT ckpt_load('"nowhere"');
SELECT count(*) FROM ckpt_summary_due('nowhere');
SELECT ckpt_rewind('nowhere', 0), ckpt_delete_thread('nowhere');

SELECT ckpt_put('there', '{"nothing": null, "no": false, "zero": 0, "empty": ""}', checkpoint_id => 'c');
SELECT ckpt_channel('there', 'nothing') AS stored_null, ckpt_channel('there', 'other') IS NULL AS missing,
       ckpt_channel('there', 'no') AS no, ckpt_channel('there', 'zero') AS zero, ckpt_channel('there', 'empty') AS empty;
SELECT ckpt_state('there', channels => '{zero,other,nothing}');

-- Writes that came before their checkpoint make no checkpoint.
SELECT ckpt_put_writes('early', 'later', 'a', '[["x", 1]]');
SELECT count(*) FROM ckpt_latest('early');
SELECT count(*) FROM ckpt_resume('early');
SELECT ckpt_put('early', '{}', checkpoint_id => 'later', next => '{a}');
SELECT pending_writes FROM ckpt_latest('early');
SELECT finished, todo FROM ckpt_resume('early');
