"""Small datasets that show one defect each, and the sound twin of each: a module a family."""
