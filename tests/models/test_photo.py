"""Preprocessing of photos, held to torch's own antialiased bicubic resampling."""

from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from labkit.engine import Prepare
from labkit.errors import SettingError
from labkit.models.photo import PreparePhoto

prepare = PreparePhoto()


def smooth(height, width, channels=3):
    """An image without sharp edges, so that two resamplers must agree closely."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 100 * np.sin(x / (40 + 9 * c)) * np.cos(y / (50 - 7 * c)) for c in range(channels)]
    return np.stack(planes, -1).astype(np.uint8)


def encoded(image, kind="JPEG", **options):
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def expected_row(pixels):
    """Short side 256 bicubic, centre 224, (x - 127) / 128, by torch."""
    height, width = pixels.shape[:2]
    ratio = 256 / min(height, width)
    size = (round(height * ratio), round(width * ratio))
    planes = torch.from_numpy(pixels).permute(2, 0, 1).unsqueeze(0).float()
    scaled = functional.interpolate(planes, size, mode="bicubic", antialias=True)[0].clamp(0, 255)
    top, left = (size[0] - 224) // 2, (size[1] - 224) // 2
    return (scaled[:, top : top + 224, left : left + 224] - 127) / 128


@pytest.mark.parametrize(("height", "width"), [(600, 400), (300, 451), (256, 256), (120, 90)])
def test_a_row_is_what_torch_makes_of_the_same_pixels(height, width):
    pixels = smooth(height, width)
    row = prepare(pixels)
    assert row.shape == (3, 224, 224)
    assert row.dtype == torch.float32
    torch.testing.assert_close(row, expected_row(pixels), rtol=0, atol=1.5 / 128)


def test_a_jpeg_is_decoded_at_full_size():
    payload = encoded(Image.fromarray(smooth(1200, 1600)), quality=95)
    pixels = np.asarray(Image.open(BytesIO(payload)))
    assert torch.equal(prepare(payload), prepare(pixels))


def test_into_writes_the_same_row_into_the_place_it_was_given(photo_workload):
    staging, asked = torch.full((2, 3, 224, 224), torch.nan), []

    def place(shape, dtype, real_units=None):
        asked.append((shape, dtype))
        return staging[1]

    for payload in photo_workload.payloads:
        row = prepare.into(payload, place)
        assert row.data_ptr() == staging[1].data_ptr()
        assert torch.equal(staging[1], prepare(payload))
    assert staging[0].isnan().all()
    assert set(asked) == {((3, 224, 224), torch.float32)}


def test_it_is_a_prepare():
    assert isinstance(prepare, Prepare)


def test_grey_photos_have_three_equal_channels():
    row = prepare(encoded(Image.fromarray(smooth(300, 300)[:, :, 0])))
    assert torch.equal(row[0], row[1])
    assert torch.equal(row[0], row[2])
    assert row.std() > 0.1


def test_cmyk_photos_become_rgb():
    photo = Image.fromarray(smooth(300, 300))
    row = prepare(encoded(photo.convert("CMYK"), quality=100))
    torch.testing.assert_close(row, prepare(photo), rtol=0, atol=0.1)


def test_an_alpha_channel_is_dropped():
    pixels = smooth(300, 300, channels=4)
    opaque = prepare(np.ascontiguousarray(pixels[:, :, :3]))
    assert torch.equal(prepare(pixels), opaque)
    assert torch.equal(prepare(encoded(Image.fromarray(pixels), "PNG")), opaque)


def test_a_photo_that_its_camera_marked_as_turned_is_turned_back():
    upright = Image.fromarray(smooth(300, 400))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right to see it upright
    turned = encoded(upright.transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)
    assert torch.equal(prepare(turned), prepare(upright))


def test_a_caller_s_image_is_left_as_it_was():
    image = Image.fromarray(smooth(300, 400))
    before = image.tobytes()
    prepare(image)
    assert image.size == (400, 300)
    assert image.tobytes() == before


def test_a_very_narrow_photo_still_fills_the_square():
    assert prepare(smooth(3, 900)).shape == (3, 224, 224)


def test_many_threads_give_the_rows_of_one(photo_workload):
    payloads = photo_workload.payloads[:6] * 3
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(prepare, payloads))
    assert all(torch.equal(row, prepare(payload)) for row, payload in zip(together, payloads, strict=True))


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"%PDF-1.7 not a photo", "20 bytes.*%PDF"),
        (b"", "0 bytes"),
        ("photo.jpg", "is a str"),
        (None, "is a NoneType"),
        (np.zeros((10, 10, 3), np.float32), r"float32 array of the shape \(10, 10, 3\)"),
        (np.zeros((10, 10, 2), np.uint8), r"\(10, 10, 2\)"),
        (np.zeros((0, 10, 3), np.uint8), r"\(0, 10, 3\)"),
        (encoded(Image.fromarray(smooth(300, 300)))[:900], "900 bytes cannot be decoded"),
    ],
    ids=["pdf", "nothing", "a path", "None", "floats", "two channels", "no rows", "cut off"],
)
def test_what_is_no_photo_is_named_and_what_is_expected_is_said(payload, said):
    with pytest.raises(SettingError, match=said) as raised:
        prepare(payload)
    assert "Give the bytes of a JPEG" in str(raised.value)


def test_a_cut_larger_than_the_photo_is_refused():
    with pytest.raises(SettingError, match="side is 300"):
        PreparePhoto(short_side=256, side=300)
