-- What is left out of messages when they are read: rules that users may add to, and those that are shipped.

CREATE TABLE @extschema@.checkpoint_markup (
    name        text    COLLATE "C" PRIMARY KEY,
    kind        text    COLLATE "C" NOT NULL,
    pattern     text    COLLATE "C" NOT NULL,
    keep        text    COLLATE "C" NOT NULL DEFAULT 'nothing',
    replacement text    COLLATE "C",
    enabled     boolean NOT NULL DEFAULT true,
    ordinal     integer NOT NULL DEFAULT 1000,
    shipped     boolean NOT NULL DEFAULT false,
    CONSTRAINT checkpoint_markup_rule CHECK (@extschema@.ckpt_check_markup(kind, pattern, keep, replacement))
);

COMMENT ON TABLE  @extschema@.checkpoint_markup IS 'What ckpt_strip, and with it ckpt_window and ckpt_load, leave out of messages';
COMMENT ON COLUMN @extschema@.checkpoint_markup.kind IS 'tag: what stands between <pattern …> and </pattern>; pattern: what a regular expression matches; data: base64 of a media type that begins so';
COMMENT ON COLUMN @extschema@.checkpoint_markup.pattern IS 'The name of the tag, the regular expression (RE2 syntax: no look-around, no back-references), or the beginning of the media type';
COMMENT ON COLUMN @extschema@.checkpoint_markup.keep IS 'nothing; text: that between the tags, or the first group of the pattern; or replacement';
COMMENT ON COLUMN @extschema@.checkpoint_markup.replacement IS 'What stands there instead: of a pattern with $1 for its groups, of data with {type} and {size}';
COMMENT ON COLUMN @extschema@.checkpoint_markup.enabled IS 'Whether the rule is used';
COMMENT ON COLUMN @extschema@.checkpoint_markup.ordinal IS 'The order in which rules are used; the shipped ones have 100 to 999';
COMMENT ON COLUMN @extschema@.checkpoint_markup.shipped IS 'Whether it came with the extension: it can be switched off, but not changed or deleted';

INSERT INTO @extschema@.checkpoint_markup (shipped, ordinal, name, kind, pattern, keep, replacement) VALUES
    -- What a model thinks before it answers.
    (true, 100, 'think',        'tag', 'think',       'nothing', NULL),
    (true, 101, 'thinking',     'tag', 'thinking',    'nothing', NULL),
    (true, 102, 'reasoning',    'tag', 'reasoning',   'nothing', NULL),
    (true, 103, 'scratchpad',   'tag', 'scratchpad',  'nothing', NULL),
    (true, 104, 'ant-thinking', 'tag', 'antThinking', 'nothing', NULL),
    -- Documents that the front end shows beside the chat.
    (true, 110, 'artifact',     'tag', 'artifact',    'replacement', '[artifact]'),
    (true, 111, 'ant-artifact', 'tag', 'antArtifact', 'replacement', '[artifact]'),
    -- Cards that a tool rendered for the user.
    (true, 120, 'card',         'tag', 'card',        'nothing', NULL),
    (true, 121, 'tool-card',    'tag', 'tool-card',   'nothing', NULL),
    (true, 122, 'tool_card',    'tag', 'tool_card',   'nothing', NULL),
    (true, 123, 'widget',       'tag', 'widget',      'nothing', NULL),
    (true, 124, 'card-block',   'pattern', '(?mi)^:::[ \t]?(?:card|tool|tool-card|widget)\b[^\n]*\n(?:[^\n]*\n)*?:::[ \t]*$', 'nothing', NULL),
    -- Citations: what is cited stays, where it is a part of the sentence.
    (true, 130, 'cite',         'tag', 'cite',        'text', NULL),
    (true, 131, 'ant-cite',     'tag', 'antml:cite',  'text', NULL),
    (true, 132, 'citation',     'tag', 'citation',    'nothing', NULL),
    (true, 133, 'citations',    'tag', 'citations',   'nothing', NULL),
    (true, 134, 'sources',      'tag', 'sources',     'nothing', NULL),
    (true, 140, 'citation-sup',        'pattern', '(?i)<sup>(?:\s?\[[1-9][0-9]{0,2}\])+\s?</sup>', 'nothing', NULL),
    (true, 141, 'citation-lenticular', 'pattern', '[ \t]?【[^【】\n]+】', 'nothing', NULL),
    (true, 142, 'citation-private',    'pattern', '[ \t]?\x{E200}[^\x{E200}\x{E201}]+\x{E201}', 'nothing', NULL),
    (true, 143, 'citation-named',      'pattern', '(?i)[ \t]?\[(?:citation|cite|source|doc|ref):?[ \t]?[1-9][0-9]{0,2}\]', 'nothing', NULL),
    (true, 144, 'footnote-text',       'pattern', '(?m)^\[\^[0-9A-Za-z_-]{1,20}\]:[^\n]*\n?', 'nothing', NULL),
    (true, 145, 'footnote',            'pattern', '[ \t]?\[\^[0-9A-Za-z_-]{1,20}\]', 'nothing', NULL),
    -- Only behind a word or a full stop and before a blank or the end of a clause: "x = [1]", "the values [1, 2]" and "a[1].b" are no
    -- citations. (Two rules, because a pattern in which one literal must come is found without trying it everywhere.)
    (true, 146, 'citation-number',     'pattern',
        '([^\s=:,(+/\\<>|#\[\]-])[ \t]?\[[1-9][0-9]{0,2}\](?:[ \t]?\[[1-9][0-9]{0,2}\])*([.,;:!?)”"''»*_]{0,4}(?:\s|$))', 'replacement', '$1$2'),
    (true, 147, 'citation-numbers',    'pattern',
        '([^\s=:,(+/\\<>|#\[\]-])(?:\[[1-9][0-9]{0,2}(?:[ \t]?[,–-][ \t]?[1-9][0-9]{0,2})*\])+([.,;:!?)”"''»*_]{0,4}(?:\s|$))', 'replacement', '$1$2'),
    -- Images: a note says what was there.
    (true, 150, 'image-data',   'data', 'image/', 'replacement', '[{type}, {size}]'),
    (true, 151, 'image-tag',    'pattern', '(?i)<img\b[^<>\[\]]*\[(image/[^\[\]]+)\][^<>\[\]]*>', 'replacement', '[$1]');

-- Shipped rules come with CREATE EXTENSION, so a dump has only those that are switched off, which its restore finds there already.
CREATE FUNCTION @extschema@.checkpoint_markup_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NOT NEW.shipped THEN
            RETURN NEW;
        END IF;
        EXECUTE format('UPDATE %I.%I SET enabled = $1 WHERE name = $2 AND shipped', TG_TABLE_SCHEMA, TG_TABLE_NAME)
        USING NEW.enabled, NEW.name;
        RETURN NULL;
    ELSIF TG_OP = 'UPDATE' THEN
        IF OLD.shipped OR NEW.shipped THEN
            IF ROW(OLD.name, OLD.kind, OLD.pattern, OLD.keep, OLD.replacement, OLD.ordinal, OLD.shipped)
               IS NOT DISTINCT FROM ROW(NEW.name, NEW.kind, NEW.pattern, NEW.keep, NEW.replacement, NEW.ordinal, NEW.shipped) THEN
                RETURN NEW;
            END IF;
        ELSE
            RETURN NEW;
        END IF;
    ELSIF TG_OP = 'DELETE' THEN
        IF NOT OLD.shipped THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'shipped rules of % cannot be changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'invalid_parameter_value',
              DETAIL = 'They come with the extension, and would be there again after a restore.',
              HINT = format('Switch one off (UPDATE %I SET enabled = false WHERE name = ''…'') and add a rule of your own.', TG_TABLE_NAME);
END
$guard$;

COMMENT ON FUNCTION @extschema@.checkpoint_markup_guard() IS 'Lets shipped rules be switched off and on, and nothing else';

CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON @extschema@.checkpoint_markup
    FOR EACH ROW EXECUTE FUNCTION @extschema@.checkpoint_markup_guard();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON @extschema@.checkpoint_markup
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.checkpoint_markup_guard();

SELECT pg_catalog.pg_extension_config_dump('@extschema@.checkpoint_markup', 'WHERE NOT shipped OR NOT enabled');

REVOKE ALL ON @extschema@.checkpoint_markup FROM PUBLIC;
