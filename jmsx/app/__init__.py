"""The app interface: `App`, and `@app.consumer(...)` for plain functions; built on the JMS interface, `jmsx.jms`."""

from jmsx.app.application import App
from jmsx.app.health import HealthLimits
from jmsx.app.parameters import Header, Property
from jmsx.app.registration import Consumer
from jmsx.jms.outcomes import BatchError

__all__ = ["App", "BatchError", "Consumer", "Header", "HealthLimits", "Property"]
