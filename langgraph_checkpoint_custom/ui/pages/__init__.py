"""The pages. A view takes what the pages share and a request, and returns a response."""
