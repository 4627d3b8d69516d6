"""Labels in, for comparing a clustering with the truth."""

import numpy as np
import pytest

from pamc.data.readers import read_label_pairs, read_labels


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.csv", "label\n2\n0\n2\n"),
        ("l.csv", "anything\n2\n0\n2\n"),
        ("l.csv", "2\n0\n2\n"),
        ("l.txt", "2\n0\n2\n"),
        ("l.csv", "id,cluster,confidence\na,2,0.5\nb,0,0.5\nc,2,0.9\n"),
        ("l.csv", "x,Class\n1,2\n1,0\n1,2\n"),
    ],
)
def test_labels_are_found_in_every_usual_table(write, name, text):
    assert read_labels(write(name, text)).labels.tolist() == [2, 0, 2]


def test_ids_come_along(write):
    path = write("l.csv", "cluster,id\n2,x\n0,y\n")
    assert read_labels(path).ids.tolist() == ["x", "y"]
    assert read_labels(write("m.csv", "cluster\n2\n")).ids is None
    assert read_labels(write("n.csv", "key,cluster\nu,2\n"), id_column="key").ids.tolist() == ["u"]


def test_text_labels_become_codes_in_sorted_order(write):
    assert read_labels(write("l.csv", "species\ndog\ncat\ndog\n")).labels.tolist() == [1, 0, 1]


def test_a_column_can_be_named(write, refusal):
    path = write("l.csv", "a,b\n1,2\n3,4\n")
    assert read_labels(path, column="b").labels.tolist() == [2, 4]
    assert "'bb', but the columns are a, b" in refusal(read_labels, path, column="bb")
    assert "which column holds the labels?" in refusal(read_labels, path)
    assert "found class, y" in refusal(read_labels, write("m.csv", "class,y\n1,2\n"))


def test_a_column_named_id_can_be_the_labels(write):
    found = read_labels(write("l.csv", "id\n5\n6\n"))
    assert found.labels.tolist() == [5, 6]
    assert found.ids is None


def test_arrays_are_labels_too(tmp_path):
    np.save(tmp_path / "a.npy", np.array([2, 0], dtype=np.int8))
    np.save(tmp_path / "b.npy", np.array(["x", "a"]))
    np.savez(tmp_path / "c.npz", x=np.ones((2, 2)), y=[3, 1])
    np.savez(tmp_path / "d.npz", only=[4, 1])
    wanted = {"a.npy": [2, 0], "b.npy": [1, 0], "c.npz": [3, 1], "d.npz": [4, 1]}
    assert {name: read_labels(tmp_path / name).labels.tolist() for name in wanted} == wanted
    assert read_labels(tmp_path / "c.npz", column="y").labels.tolist() == [3, 1]


def test_what_holds_no_labels_is_refused(write, tmp_path, refusal):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    np.savez(tmp_path / "b.npz", x=np.ones((2, 2)), z=[1, 2])
    assert "1-D array" in refusal(read_labels, tmp_path / "a.npy")
    assert "no array 'y' of labels; found x, z" in refusal(read_labels, tmp_path / "b.npz")
    assert "no rows" in refusal(read_labels, write("l.csv", "label\n"))
    assert "the cell is empty; every row needs a label" in refusal(read_labels, write("l.csv", "id,y\na,1\nb,\n"))
    assert "contains some ids more than once" in refusal(read_labels, write("l.csv", "id,y\na,1\na,2\n"))
    assert "holds no table" in refusal(read_labels, write("l.xyz", "1"))


def test_pairs_are_joined_by_id_whatever_the_order(write):
    truth = write("t.csv", "id,class\na,cat\nb,dog\nc,cat\n")
    found = write("f.csv", "id,cluster,confidence\nc,7,1\na,5,1\nb,6,1\n")
    y_true, y_pred = read_label_pairs(truth, found)
    assert y_true.tolist() == [0, 0, 1]
    assert y_pred.tolist() == [7, 5, 6]


def test_pairs_go_by_order_where_one_file_has_no_ids(write):
    truth = write("t.csv", "class\n3\n4\n")
    found = write("f.csv", "id,cluster\nb,0\na,1\n")
    assert [labels.tolist() for labels in read_label_pairs(truth, found)] == [[3, 4], [0, 1]]
    assert [labels.tolist() for labels in read_label_pairs(found, truth)] == [[0, 1], [3, 4]]


def test_pairs_that_do_not_match_are_refused(write, refusal):
    truth = write("t.csv", "id,class\na,1\nb,2\n")
    assert "t.csv has 2 labels and" in refusal(read_label_pairs, truth, write("f.csv", "cluster\n1\n"))
    message = refusal(read_label_pairs, truth, write("f.csv", "id,cluster\na,1\nz,2\n"))
    assert "1 id is not in" in message
    assert "'z'" in message
