"""How traces cross the wire: cut into batches, checked, put together again."""
