import pytest

from regrow.data import catalogue, list_datasets


@pytest.mark.parametrize("record", list_datasets(), ids=lambda record: record.name)
def test_records_are_consistent(record):
    assert len(record.normalisation.mean) == len(record.normalisation.std) == record.shape[0]
    assert all(len(digest) == 64 and int(digest, 16) for _, digest in record.files)
    assert len({digest for _, digest in record.files}) == len(record.files)
    assert catalogue.find(record.name) is record


def test_find_knows_no_others():
    assert catalogue.find("imagenette") is None
    assert "did you mean 'imagenet'" in str(catalogue.unknown("imagnet"))
    assert "did you mean" not in str(catalogue.unknown("qqqq"))
