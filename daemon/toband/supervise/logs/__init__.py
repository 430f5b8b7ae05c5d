"""Reading attempt files: live, finished or compressed. The shim writes them."""
