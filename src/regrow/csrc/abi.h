// The C interface describes itself: Python makes its calls by this description and compares its own records with it.
#pragma once
#include <string>
#include <type_traits>

namespace regrow {

// One letter per type: p a pointer, n a 64-bit count, i int, d double, f float.
template <class A>
constexpr char letter_of() {
  if constexpr (std::is_pointer_v<A>) return 'p';
  else if constexpr (std::is_same_v<A, int64_t>) return 'n';
  else if constexpr (std::is_same_v<A, int>) return 'i';
  else if constexpr (std::is_same_v<A, double>) return 'd';
  else static_assert(!sizeof(A), "no letter for this type");
}

// "forward_f32 ppppnpppni <address>": a function's parameters.
template <class... A>
std::string describe(const std::string& name, int (*function)(A...)) {
  std::string letters{letter_of<A>()...};
  return "function " + name + " " + letters + " " + std::to_string(reinterpret_cast<uintptr_t>(function)) + "\n";
}

// "record SgdStep 88 lr:d:0 ...": every field's type and place, and the size of all.
std::string describe_records();

}  // namespace regrow
