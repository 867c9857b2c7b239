#!/usr/bin/env python3
"""A hosting API, a payment provider and a mail provider to try the examples with: on 127.0.0.1:8088, in memory.

It honours an Idempotency-Key, says what it did, and refuses charges above 100.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

ids = count(1)
first_answers = {}


class Leaf(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        key = (self.path, self.headers["Idempotency-Key"])
        if self.path == "/pay/charges" and body["amount"] > 100:
            self.answer(402, {"error": "the card has not enough"})
            return
        if key not in first_answers:
            first_answers[key] = {"id": str(next(ids)), **body}
        self.answer(201, first_answers[key])

    def do_DELETE(self):
        self.answer(200, {})

    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8088
    server = ThreadingHTTPServer(("127.0.0.1", port), Leaf)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
