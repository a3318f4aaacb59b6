"""stomp.py joined to the core: sockets, threads and clocks live here. Only this package imports stomp."""
