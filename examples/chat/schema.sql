-- The application's own tables: what a user sees, what is billed, and what was learned from it. What the model sees is the
-- business of the checkpointer. Nothing here refers to its tables, and it knows nothing of these.

CREATE SCHEMA chat_demo;

CREATE TABLE chat_demo.threads (
    thread_id text PRIMARY KEY,
    user_id   text NOT NULL,
    -- How many messages it has. Whoever changes a thread locks this row first; that gives turns one order, here and in the log.
    messages  int  NOT NULL DEFAULT 0,
    -- Up to which message facts were extracted. Numbers are given under the lock, so nothing appears below it later.
    extracted int  NOT NULL DEFAULT 0 CHECK (extracted BETWEEN 0 AND messages)
);

CREATE TABLE chat_demo.messages (
    thread_id  text NOT NULL REFERENCES chat_demo.threads ON DELETE CASCADE,
    number     int  NOT NULL,
    request_id text NOT NULL,
    role       text NOT NULL CHECK (role IN ('user', 'assistant')),
    -- As the front end shows it, citations and all.
    content    text NOT NULL,
    -- What the provider of the model charges for the answer; nothing for a user's message.
    tokens_in  int  NOT NULL DEFAULT 0,
    tokens_out int  NOT NULL DEFAULT 0,
    cost       numeric(12, 6) NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (thread_id, number),
    -- A request is answered once, however often the client sends it.
    UNIQUE (thread_id, request_id, role)
);

CREATE TABLE chat_demo.facts (
    -- Made from user and fact: the same fact has the same key, whoever extracts it and whenever.
    fact_id    text PRIMARY KEY,
    user_id    text NOT NULL,
    -- The message that it was first found in.
    thread_id  text NOT NULL,
    number     int  NOT NULL,
    fact       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (thread_id, number) REFERENCES chat_demo.messages ON DELETE CASCADE
);

-- For the page that shows users what is known of them.
CREATE INDEX facts_by_user ON chat_demo.facts (user_id, created_at);
-- For taking away what was learned from a message.
CREATE INDEX facts_by_message ON chat_demo.facts (thread_id, number);
