"""The way to the API server: reads become events, commands become writes."""
