"""A lease in a table of PostgreSQL, over a connection that speaks its protocol: https://www.postgresql.org/docs/current/protocol-flow.html

A row has the owner, a fencing token and the time at which the lease ends, by the server's clock.
"""

import socket
import struct

from leased import Fail, Leased, serve

TABLE = """create table if not exists harness_leases
  (name text primary key, owner text, token bigint not null, ends timestamptz not null)"""
ACQUIRE = """insert into harness_leases as l values ('{lock}', '{owner}', 1, clock_timestamp() + interval '{ms} ms')
  on conflict (name) do update set owner = excluded.owner, token = l.token + 1, ends = excluded.ends
  where l.ends < clock_timestamp() returning token"""
RELEASE = """update harness_leases set ends = '-infinity', owner = null
  where name = '{lock}' and owner = '{owner}' and ends > clock_timestamp() returning token"""


class Postgres:
    """One connection; a call that fails or times out closes it, so that no answer is taken for another's."""

    def __init__(self, endpoint, timeout):
        host, port = endpoint.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")
        parameters = b"user\0postgres\0database\0postgres\0\0"
        self.socket.sendall(struct.pack("!ii", 8 + len(parameters), 196608) + parameters)
        self.answers()

    def query(self, text):
        body = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", 4 + len(body)) + body)
        return self.answers()

    def answers(self):
        """The first columns of the rows until the server is ready for the next query."""
        rows, refusal = [], None
        while True:
            head = self.exactly(5)
            kind, length = head[:1], struct.unpack("!i", head[1:])[0]
            body = self.exactly(length - 4)
            if kind == b"D":
                size = struct.unpack("!i", body[2:6])[0]
                rows.append(body[6 : 6 + size].decode())
            elif kind == b"R" and body != b"\0\0\0\0":
                raise ConnectionError("it wants a password")
            elif kind == b"E":
                refusal = body.replace(b"\0", b" ").decode(errors="replace")
            elif kind == b"Z":
                break
        if refusal is not None:
            raise Fail(refusal)
        return rows

    def exactly(self, count):
        data = self.stream.read(count)
        if len(data) < count:
            raise ConnectionError("the server closed the connection")
        return data

    def close(self):
        self.stream.close()
        self.socket.close()


class PgLease(Leased):
    contract = {"lease": True, "renews": False, "tries": True, "wakes": "polls", "owner": "own", "token": "own"}

    def begin(self):
        try:
            self.query(TABLE)
        except Fail:
            self.query(TABLE)  # another client made it at the same time

    def query(self, text, **values):
        try:
            if self.connection is None:
                self.connection = Postgres(self.endpoint, self.lease / 2)
            return self.connection.query(text.format(**values))
        except OSError:
            self.close()
            raise

    def take(self, lock, name):
        tokens = self.query(ACQUIRE, lock=lock, owner=name, ms=self.milliseconds())
        return int(tokens[0]) if tokens else None

    def give(self, lock, name):
        return len(self.query(RELEASE, lock=lock, owner=name)) == 1


serve(PgLease)
