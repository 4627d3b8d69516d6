"""The lab: everything that measures pamc, compares methods and uses labels to do so, and the pages made of its rows."""
