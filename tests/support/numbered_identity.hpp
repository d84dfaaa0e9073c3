// Identities of instances that a test knows by numbers.
#pragma once

#include <cstdint>
#include <cstring>
#include <ostream>

#include "core/instance_identity.hpp"

namespace cenote {

/// One for each number; or the identity of a spec, where a helper takes both.
struct numbered_identity : instance_identity {
  numbered_identity(std::uint64_t number) noexcept { std::memcpy(bytes.data(), &number, sizeof number); }
  numbered_identity(const instance_identity& whole) noexcept : instance_identity(whole) {}
};

inline instance_identity operator""_identity(unsigned long long number) noexcept {
  return numbered_identity(number);
}

inline std::ostream& operator<<(std::ostream& out, const instance_identity& identity) {
  return out << identity_text(identity);
}

}  // namespace cenote
