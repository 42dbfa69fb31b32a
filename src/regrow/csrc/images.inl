// Batches of images in the kernels' layout: bytes become normalised numbers, y = x * scale + shift per channel, samples
// innermost, in one pass. Included once per instruction set.

// Rounded after the product and after the sum, as torch does it, also where one instruction could do both.
template <class T>
REGROW_INLINE Vec<T> normalised(Vec<T> x, T scale, T shift) {
  Vec<T> product = x * scale;
#ifdef REGROW_AVX2
  if constexpr (sizeof(T) == 4) __asm__("" : "+x"(product));
#endif
  return product + shift;
}

template <class T>
REGROW_INLINE Vec<T> widened(const uint8_t* x) {
#ifdef REGROW_AVX2
  if constexpr (sizeof(T) == 4) return (Vec<T>)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)x)));
#endif
  Vec<T> wide;
  for (int i = 0; i < kLanes; i++) wide[i] = T(x[i]);
  return wide;
}

// Eight or fewer samples from the n-th on: y[channel][pixel][sample].
template <class T>
void load_few_images(const uint8_t* images, int64_t count, int64_t n, int64_t samples, int64_t channels, int64_t pixels,
                        const T* scale, const T* shift, T* y) {
  const int64_t size = channels * pixels;
  alignas(64) T block[kLanes * kLanes];
  for (int64_t i = 0; i < size;) {
    const int64_t c = i / pixels, left = (c + 1) * pixels - i, width = left < kLanes ? left : kLanes;
    for (int64_t k = 0; k < count; k++) {
      const uint8_t* from = images + (n + k) * size + i;
      if (width == kLanes)
        *(Vec<T>*)(block + k * kLanes) = normalised<T>(widened<T>(from), scale[c], shift[c]);
      else
        for (int64_t j = 0; j < width; j++) block[k * kLanes + j] = normalised<T>(Vec<T>{} + T(from[j]), scale[c], shift[c])[0];
    }
    T* to = y + i * samples + n;
    if (count == kLanes && width == kLanes)
      transpose_block(block, kLanes, to, samples);
    else
      for (int64_t j = 0; j < width; j++)
        for (int64_t k = 0; k < count; k++) to[j * samples + k] = block[k * kLanes + j];
    i += width;
  }
}

template <class T>
void load_images(const uint8_t* images, int64_t samples, int64_t channels, int64_t pixels, const T* scale, const T* shift, T* y,
                 int part, int parts) {
  const Range mine = share((samples + kLanes - 1) / kLanes, part, parts);
  for (int64_t n = mine.begin * kLanes; n < mine.end * kLanes && n < samples; n += kLanes) {
    const int64_t count = samples - n < kLanes ? samples - n : kLanes;
    load_few_images(images, count, n, samples, channels, pixels, scale, shift, y);
  }
}
