"""Handles one request of a retrieval chat.

    retrieve, classify   what belongs to this request only       never stored
    load                 what was said before, for the model     ckpt_load
    ask the model        outside of any transaction
    keep the turn        for users and billing, and in the log   one transaction: both or neither, once

The application's tables and the checkpointer's log are in one database and do not know each other; here they meet.
"""

from dataclasses import dataclass

from memory import said
from scripted import retrieve_and_classify

SYSTEM = "You help the readers of a public library. Answer from the documents and cite them."


@dataclass(frozen=True)
class Request:
    user: str
    thread: str
    id: str  # chosen by the client, who sends it again if the answer gets lost
    message: str
    # What older clients send: the conversation as they hold it, in a string "User: …\nAssistant: …" or in a list of messages.
    conversation: str | list | None = None


class Backend:
    def __init__(self, conn, store, memory, model, size=60, max_tokens=4000):
        self.conn = conn  # in autocommit mode
        self.store = store
        self.memory = memory
        self.model = model
        self.limits = {"size": size, "max_tokens": max_tokens}

    def handle(self, request):
        # A client that lost the answer gets the same one, and the model is not paid twice.
        answer = self.store.answer_of(request.user, request.thread, request.id)
        if answer is None:
            answer = self.keep(request, self.model.answer(self.prompt(request)))
        return answer

    def prompt(self, request):
        """What the model reads. All that is peculiar to this request is in the preamble, and so ends with it."""
        context = retrieve_and_classify(request.id, request.message)
        messages = self.memory.load(
            conversation_of(request), current=said("user", request.message), preamble=preamble(context), **self.limits
        )
        # An edited message carries its id in the log, and providers refuse members that they do not know.
        return [said(message["role"], message["content"]) for message in messages]

    def keep(self, request, reply):
        """Keeps the turn, unless another attempt of the same request was faster; returns the answer that counts."""
        with self.conn.transaction():
            if self.store.add_turn(request.user, request.thread, request.id, request.message, reply):
                # The id of the request as the turn: the same turn is stored once, and the same words in another turn again.
                turn = [said("user", request.message), said("assistant", reply.text)]
                self.memory.append(request.thread, turn, turn=request.id)
                return reply.text
        return self.store.answer_of(request.user, request.thread, request.id)

    def redact(self, thread, request_id, new):
        """Takes a text out of what users see and of what the model sees, and with it all that was made of it."""
        with self.conn.transaction():
            old = self.store.redact(thread, request_id, new)
            self.memory.replace(thread, request_id, "user", old, new)


def conversation_of(request):
    """Where ckpt_load finds the conversation: in the log, or in what the client sent."""
    match request.conversation:
        case None:
            return {"thread_id": request.thread}
        case str(history):
            return {"history": history}
        case messages:
            return {"messages": messages}


def preamble(context):
    # The system prompt first and by itself: providers cache a beginning that is always the same.
    documents = [f"[{at}] {entry.title}: {entry.answer} {entry.detail}" for at, entry in enumerate(context.documents, 1)]
    about = [f"Trace: {context.retrieval}", f"Intent: {context.intent}", "Documents:", *(documents or ["none"])]
    return [said("system", SYSTEM), said("system", "\n".join(about))]
