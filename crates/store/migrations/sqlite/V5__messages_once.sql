-- From here on a part of a run may lack large arguments that an event of the same run has. The tables stay as they are; the number
-- keeps releases away that would take such a part for a message without arguments.
SELECT 1;
