"""Write HTML pages and images about a run."""
