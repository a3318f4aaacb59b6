"""The JMS interface: `Connection`, `Session`, `MessageConsumer`, `MessageProducer`, `Message`, named as in JMS."""
