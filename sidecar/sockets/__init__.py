"""The local socket: listener, worker connections, framing."""
