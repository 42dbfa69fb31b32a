#include "abi.h"

#include <cstddef>

#include "records.h"

namespace regrow {
namespace {

template <class A>
std::string field(const char* name, size_t offset) {
  return std::string(" ") + name + ":" + letter_of<A>() + ":" + std::to_string(offset);
}

}  // namespace

std::string describe_records() {
  using T = float;  // records have the same shape in every precision: numbers in them are double, arrays pointers
  std::string text;
#define RECORD(NAME) { using Record = NAME; text += std::string("record " #NAME " ") + std::to_string(sizeof(Record));
#define RECORD_OF_T(NAME) { using Record = NAME<T>; static_assert(sizeof(NAME<float>) == sizeof(NAME<double>)); \
    text += std::string("record " #NAME " ") + std::to_string(sizeof(Record));
#define FIELD(TYPE, NAME) text += field<TYPE>(#NAME, offsetof(Record, NAME));
#define END(NAME) text += "\n"; }
#include "records.inc"
#undef RECORD
#undef RECORD_OF_T
#undef FIELD
#undef END
  return text;
}

}  // namespace regrow
