"""A stand-in for a bucket of Google Cloud Storage: get, insert and delete of objects by its JSON
API, with generation preconditions.

Prints its port, and then a line of JSON for each request. It listens on 127.0.0.1 only.
"""

import http.server
import json
import threading
import urllib.parse

objects, generations, lock = {}, iter(range(1000, 10**9)), threading.Lock()


class Bucket(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send_answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve_request(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        name = query.get("name") or urllib.parse.unquote(url.path.rpartition("/o/")[2])
        body, condition = (
            self.rfile.read(int(self.headers.get("Content-Length", 0))),
            query.get("ifGenerationMatch"),
        )
        with lock:
            print(
                json.dumps({"method": self.command, "name": name, "condition": condition}),
                flush=True,
            )
            generation, data = objects.get(name, (0, b""))
            if condition is not None and int(condition) != generation:
                self.send_answer(412, b"{}")
            elif self.command == "POST":
                objects[name] = (next(generations), body)
                about = {"name": name, "generation": str(objects[name][0]), "size": str(len(body))}
                self.send_answer(200, json.dumps(about).encode(), Content_Type="application/json")
            elif not generation:
                self.send_answer(404, b"{}")
            elif self.command == "DELETE":
                del objects[name]
                self.send_answer(204)
            else:
                self.send_object(generation, data)

    def send_object(self, generation, data):
        begin = int(self.headers.get("Range", "bytes=0-").partition("=")[2].partition("-")[0])
        if begin and begin >= len(data):
            self.send_answer(416)
        else:
            self.send_answer(206 if begin else 200, data[begin:], X_Goog_Generation=str(generation))

    do_GET = do_POST = do_DELETE = serve_request


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
print(server.server_port, flush=True)
server.serve_forever()
