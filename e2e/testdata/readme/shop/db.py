# A database as far as a group sees it: it listens on a port.
import socketserver

socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler).serve_forever()
