"""How many tokens a model reads, by tiktoken: the tokenizer of those who made the encodings.

Its vocabularies come from the files that the extension is built from. tiktoken takes them only if they have the checksums
that it knows, so they are the published ones.
"""

import gzip
import hashlib
import json
import os
from functools import cache
from pathlib import Path

PUBLISHED = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
ENCODINGS = ("o200k_base", "cl100k_base")


@cache
def encoding(name):
    directory = Path(os.environ["CKPT_SCRATCH"]) / "vocabularies"
    directory.mkdir(exist_ok=True)
    path = directory / hashlib.sha1(PUBLISHED.format(name).encode()).hexdigest()
    path.write_bytes(gzip.decompress((Path(os.environ["CKPT_VOCABULARIES"]) / f"{name}.tiktoken.gz").read_bytes()))
    os.environ["TIKTOKEN_CACHE_DIR"] = str(directory)
    import tiktoken

    return tiktoken.get_encoding(name)


@cache
def of_text(text, name="o200k_base"):
    return len(encoding(name).encode(text, disallowed_special=()))


def of_message(message):
    """Of a message in the OpenAI form: its texts, and the names and arguments of its calls."""
    content = message.get("content") or []
    texts = [content] if isinstance(content, str) else [part["text"] for part in content if part.get("type") == "text"]
    for call in message.get("tool_calls") or []:
        arguments = call["function"].get("arguments", "")
        texts += [call["function"]["name"], arguments if isinstance(arguments, str) else json.dumps(arguments)]
    return sum(map(of_text, texts))
