// The records of records.inc as structures.
#pragma once
#include <cstdint>

namespace regrow {

struct Plan;

#define RECORD(NAME) struct NAME {
#define RECORD_OF_T(NAME) \
  template <class T>      \
  struct NAME {
#define FIELD(TYPE, NAME) TYPE NAME;
#define END(NAME) };
#include "records.inc"
#undef RECORD
#undef RECORD_OF_T
#undef FIELD
#undef END

}  // namespace regrow
