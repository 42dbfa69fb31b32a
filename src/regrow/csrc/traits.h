// What the kernels of one instruction set are made for: kernels are compiled with these numbers (table.inl), lists built for them (plan.cpp).
#pragma once
#include <cstdint>

namespace regrow {

// The register tile: rows x cols output pixels of one output channel, one vector of lanes each.
struct Tile {
  int rows, cols;
};

struct Traits {
  const char* name;
  int vector_bytes;
  int first_cache_bytes;         // L1
  int input_bytes;               // packed input block of a map: most of L1
  int sum_bytes;                 // partial sums of an output block of a map: a few of them stay in L2
  int64_t cache_bytes;           // L2
  int matrix_inputs;             // packed input block of a matrix: about L1 with 8 vectors of lanes
  int matrix_outputs;            // largest output block of a matrix
  int registers;                 // vectors at hand
  const Tile* tiles = nullptr;   // those that exist
  int tile_count = 0;

  constexpr Traits with(const Tile* list, int count) const {
    Traits t = *this;
    t.tiles = list, t.tile_count = count;
    return t;
  }
};

// Vectors of x, and of dx, that a walk for both gradients can hold: beside them are the sums of some weights, a weight and a gradient.
constexpr int kBothAtOnce = 4;
constexpr int both_vectors(const Traits& t) { return (t.registers - kBothAtOnce - 2) / 2; }

constexpr Traits kAvx512{"avx512", 64, 32 << 10, 24 << 10, 256 << 10, 1000 << 10, 64, 1024, 32};
constexpr Traits kWide{"wide", 64, 32 << 10, 24 << 10, 256 << 10, 1000 << 10, 64, 1024, 32};  // the 16-lane kernels without their instructions
constexpr Traits kAvx2{"avx2", 32, 32 << 10, 24 << 10, 128 << 10, 1000 << 10, 96, 1024, 16};
constexpr Traits kNeon{"neon", 16, 32 << 10, 24 << 10, 128 << 10, 1000 << 10, 128, 1024, 32};
constexpr Traits kGeneric{"generic", 16, 32 << 10, 24 << 10, 128 << 10, 1000 << 10, 128, 1024, 16};

}  // namespace regrow
