"""Decode batches and check what their objectives guarantee."""
