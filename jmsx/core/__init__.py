"""
The sans-IO core: what a JMS session does on a STOMP link.

What lives here: values, rules and state machines. What may not: a socket, thread, clock, random number, log line or
callback into the application. `now` (seconds, monotonic) is an argument; a deadline comes back from `next_timer`; what
must be done comes back from `take_actions`. A test enforces it.
"""
