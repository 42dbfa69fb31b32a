// Random masks from the Mersenne twister as torch's CPU generator runs it, a block of 624 numbers at a time: the same stream, several times
// faster.

REGROW_INLINE uint32_t twisted(uint32_t high, uint32_t low, uint32_t far) {
  return far ^ (((high & 0x80000000u) | (low & 0x7fffffffu)) >> 1) ^ (-(low & 1u) & 0x9908b0dfu);
}

// Numbers depend on others at least 227 before them: compilers make vectors of the loops.
inline void next_block(uint32_t* state) {
  constexpr int size = Twister::kSize, ahead = 397;
  for (int i = 0; i < size - ahead; i++) state[i] = twisted(state[i], state[i + 1], state[i + ahead]);
#ifndef __clang__
#pragma GCC ivdep
#endif
  for (int i = size - ahead; i < size - 1; i++) state[i] = twisted(state[i], state[i + 1], state[i + ahead - size]);
  state[size - 1] = twisted(state[size - 1], state[0], state[ahead - 1]);
}

REGROW_INLINE uint32_t tempered(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// keep[i] = 1 where a uniform double in [0, 1), the lower 53 bits of two numbers, is below p. The first number is the upper half.
template <class T>
void bernoulli(Twister& twister, double p, uint8_t* keep, int64_t count) {
  const double scaled = p * 9007199254740992.0;  // 2^53
  const int64_t whole = int64_t(scaled), threshold = whole + (double(whole) < scaled);
  uint32_t numbers[Twister::kSize + 1];
  int waiting = 0;  // a first number whose second comes with the next block
  for (int64_t done = 0; done < count;) {
    if (twister.next == Twister::kSize) next_block(twister.state), twister.next = 0;
    const int64_t wanted = 2 * (count - done) - waiting, left = Twister::kSize - twister.next;
    const int taken = int(left < wanted ? left : wanted), pairs = (waiting + taken) / 2;
    for (int i = 0; i < taken; i++) numbers[waiting + i] = tempered(twister.state[twister.next + i]);
    for (int i = 0; i < pairs; i++) {
      const int64_t bits = int64_t((uint64_t(numbers[2 * i] & 0x1fffffu) << 32) | numbers[2 * i + 1]);
      keep[done + i] = bits < threshold;
    }
    twister.next += taken, done += pairs;
    waiting = (waiting + taken) % 2;
    if (waiting) numbers[0] = numbers[2 * pairs];
  }
}
