"""Explanations of a clustering: facts about its clusters, tables, and the HTML report."""
