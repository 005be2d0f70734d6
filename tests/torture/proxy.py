"""Between the clients and the server: a socket for each client, whose connections can be cut between commit and answer."""

import asyncio
import os
import threading

# In a comment of each statement that writes, so that the proxy knows what it carries.
MARK = b"/* writes */"
# ReadyForQuery: the server has committed, or rolled back, and said all that it has to say.
READY, READY_LENGTH = b"Z\x00\x00\x00\x05", 6
SOCKET = ".s.PGSQL.5432"


class Link:
    """A client's connection."""

    def __init__(self):
        self.writing = False
        self.cut = None
        self.watchers = []

    def begins_to_write(self):
        self.writing = True
        self.tell(self.watchers, True)

    def ends(self):
        self.tell([*self.watchers, self.cut] if self.cut else self.watchers, False)

    @staticmethod
    def tell(futures, value):
        for future in futures:
            future.done() or future.set_result(value)
        futures.clear()


class Proxy:
    """Runs in a thread. A client's directory is the `host` that it connects to."""

    def __init__(self, directory, slots, server):
        self.directory, self.slots, self.server = directory, slots, os.path.join(server, SOCKET)
        self.links, self.servers, self.carried = {}, [], set()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def start(self):
        self.thread.start()
        self.run(self.listen(), 10)
        return self

    def run(self, work, timeout):
        """False if it took too long."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            return False

    async def listen(self):
        for slot in range(self.slots):
            os.mkdir(self.host(slot), 0o700)
            accept = lambda reader, writer, slot=slot: self.carry(slot, reader, writer)
            self.servers.append(await asyncio.start_unix_server(accept, os.path.join(self.host(slot), SOCKET)))

    def host(self, slot):
        return os.path.join(self.directory, str(slot))

    def stop(self):
        self.run(self.close(), 10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def close(self):
        for server in self.servers:
            server.close()
        for task in self.carried:
            task.cancel()
        await asyncio.gather(*self.carried, return_exceptions=True)

    async def carry(self, slot, reader, writer):
        task = asyncio.current_task()
        self.carried.add(task)
        try:
            await self.carry_on(slot, reader, writer)
        finally:
            self.carried.discard(task)

    async def carry_on(self, slot, reader, writer):
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self.server)
        except OSError:
            writer.close()
            return
        link = self.links[slot] = Link()
        there = asyncio.ensure_future(self.to_server(link, reader, server_writer))
        back = asyncio.ensure_future(self.to_client(link, server_reader, writer))
        try:
            # Whichever side ends, the other is told.
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            for end in (writer, server_writer):
                end.close()
            if self.links.get(slot) is link:
                del self.links[slot]
            link.ends()

    async def to_server(self, link, reader, server):
        try:
            while data := await reader.read(1 << 18):
                if MARK in data:
                    link.begins_to_write()
                server.write(data)
                await server.drain()
        except OSError:
            pass

    async def to_client(self, link, reader, client):
        tail = b""
        try:
            while data := await reader.read(1 << 18):
                tail = (tail + data)[-READY_LENGTH:]
                ready = tail.startswith(READY)
                cut = link.cut if link.writing else None
                if ready:
                    link.writing = False
                if cut is None:
                    client.write(data)
                    await client.drain()
                elif ready:
                    cut.done() or cut.set_result(True)
                    return
        except OSError:
            pass

    async def _writing(self, slot):
        while (link := self.links.get(slot)) is None:
            await asyncio.sleep(0.005)
        if link.writing:
            return True
        watcher = self.loop.create_future()
        link.watchers.append(watcher)
        return await watcher

    async def _during_write(self, slot, delay, act):
        if not await self._writing(slot):
            return False
        await asyncio.sleep(delay)
        act()
        return True

    def during_write(self, slot, delay, act, timeout=2.0):
        """Calls `act` a moment after the client sent a statement that writes."""
        return self.run(self._during_write(slot, delay, act), timeout)

    async def _cut(self, slot):
        while (link := self.links.get(slot)) is None or link.writing:
            await asyncio.sleep(0.002)
        link.cut = self.loop.create_future()
        try:
            return await link.cut
        finally:
            link.cut = None

    def cut(self, slot, timeout=2.0):
        """Lets the client's next statement that writes through, and its answer not."""
        return self.run(self._cut(slot), timeout)
