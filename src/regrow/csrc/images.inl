// Batches of images: bytes from anywhere in the set become normalised numbers, y = x * scale + shift per channel, in either layout, in
// one pass.

// Rounded after the product and after the sum, as torch does it, also where one instruction could do both.
template <class T>
REGROW_INLINE Vec<T> normalised(Vec<T> x, T scale, T shift) {
  Vec<T> product = x * scale;
  settle<T>(product);
  return product + shift;
}

// The next vector of samples lie anywhere in a large set: their bytes are fetched while these are at work.
template <class T>
REGROW_INLINE void fetch_next(const ImageBatch<T>& b, int64_t n, int64_t i) {
  if (i % kLine >= kLanes<T>) return;
  const int64_t size = b.channels * b.pixels, end = n + 2 * kLanes<T> < b.samples ? n + 2 * kLanes<T> : b.samples;
  for (int64_t k = n + kLanes<T>; k < end; k++) __builtin_prefetch(b.images + b.order[k] * size + i);
}

// A vector of samples or fewer from the n-th on.
template <class T>
void load_few_images(const ImageBatch<T>& b, int64_t n, int64_t count) {
  const int64_t size = b.channels * b.pixels;
  alignas(64) T block[kLanes<T> * kLanes<T>];
  for (int64_t i = 0; i < size;) {
    const int64_t c = i / b.pixels, left = (c + 1) * b.pixels - i, width = left < kLanes<T> ? left : kLanes<T>;
    fetch_next(b, n, i);
    for (int64_t k = 0; k < count; k++) {
      const uint8_t* from = b.images + b.order[n + k] * size + i;
      T* to = b.samples_innermost ? block + k * kLanes<T> : b.y + (n + k) * size + i;
      if (width == kLanes<T>)
        put(to, normalised<T>(widened<T>(from), b.scale[c], b.shift[c]));
      else
        for (int64_t j = 0; j < width; j++) to[j] = normalised<T>(Vec<T>{} + T(from[j]), b.scale[c], b.shift[c])[0];
    }
    T* to = b.y + i * b.samples + n;
    if (b.samples_innermost && count == kLanes<T> && width == kLanes<T>)
      transpose_block(block, kLanes<T>, to, b.samples);
    else if (b.samples_innermost)
      for (int64_t j = 0; j < width; j++)
        for (int64_t k = 0; k < count; k++) to[j * b.samples + k] = block[k * kLanes<T> + j];
    i += width;
  }
}

template <class T>
void load_images(const ImageBatch<T>& batch, int part, int parts) {
  const ImageBatch<T> b = batch;  // a copy that the stores cannot change
  const Range mine = share((b.samples + kLanes<T> - 1) / kLanes<T>, part, parts);
  for (int64_t n = mine.begin * kLanes<T>; n < mine.end * kLanes<T> && n < b.samples; n += kLanes<T>)
    load_few_images(b, n, b.samples - n < kLanes<T> ? b.samples - n : kLanes<T>);
}
