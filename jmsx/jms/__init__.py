"""The JMS face: `Connection`, `Session`, `MessageConsumer`, `MessageProducer`, `Message`, by their JMS names."""
