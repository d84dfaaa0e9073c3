// Two instances with one identity.
#pragma once

#include <string>
#include <utility>

namespace cenote::testing {

/// Names of models with which the specs of an instance called "model", in which nothing but 16 tokens and one group
/// `full` with the part `kv` stands beside them, have one identity. XXH3 adds the products of a word's halves, mixed
/// with its secret: two words with equal lower halves may change their upper ones by the same amount, up and down.
inline std::pair<std::string, std::string> models_of_one_hash() {
  const auto model = [](char first, char second) {
    return std::string(19, 'a') + "0AAA" + first + std::string(59, 'a') + "ybwr" + second + std::string(142, 'a');
  };
  return {model('b', 'c'), model('c', 'b')};
}

}  // namespace cenote::testing
