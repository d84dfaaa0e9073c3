// Requests that change something, whichever way they came.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/manager/index/key.hpp"
#include "services/manager/registry/terms.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// A mask as it was sent: the first so many, or one bool each; unset: none.
struct position_mask {
  std::optional<std::int64_t> offset{};
  std::optional<std::vector<bool>> values{};
};

/// A bool for each of `count` positions. Errors: invalid_argument (another length, an offset outside 0..count).
[[nodiscard]] rpc_outcome<std::vector<bool>> mask_of(const position_mask& mask, std::size_t count,
                                                     std::string_view field);

struct start_request {
  std::string instance{};
  std::vector<cache_key> keys{};
  std::vector<std::string> groups{};  ///< of specs: none, or one for each key
  std::int64_t timeout_s = 0;         ///< 0: the manager's
  std::int64_t replicas = 0;          ///< storages that are to have a key
};

/// The grant of a session.
struct start_grant {
  std::string session{};
  std::vector<bool> masked{};  ///< by key: it is not to be written
  std::shared_ptr<const instance_terms> instance{};
  std::uint64_t extent = 0;
  std::uint8_t storage = 0;
  std::vector<std::uint64_t> specs{};  ///< of the granted blocks, by position
  std::vector<cache_key> keys{};       ///< of the same
};

struct finish_request {
  std::string instance{};
  std::string session{};
  position_mask success{};
  std::vector<std::uint64_t> checksums{};  ///< none, or one for each spec of each granted block
};

struct remove_request {
  std::string instance{};
  std::vector<cache_key> keys{};
  position_mask spared{};
};

enum class trim_scope : std::uint8_t {
  everything,  ///< blocks and their bytes
  records,     ///< what is known of them; bytes stay
  period,      ///< blocks that were written in it
};

struct trim_request {
  std::string instance{};
  trim_scope scope = trim_scope::everything;
  std::uint32_t begin = 0, end = 0;  ///< Unix seconds, both inclusive
};

}  // namespace cenote::manager
