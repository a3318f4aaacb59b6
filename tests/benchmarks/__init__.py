"""Benchmarks: ratios, measured side by side in one run; run by hand, never as a test."""
