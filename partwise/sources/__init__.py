"""Where rows come from: files, databases, frames and streams, and opening any of them."""
