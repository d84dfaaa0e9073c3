// A directory for a catalog and blocks to put in it, for tests.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "tests/support/numbered_identity.hpp"
#include "tiers/nvme/catalog.hpp"

namespace cenote::nvme::testing {

/// Removed with all that is in it.
class scratch_directory {
 public:
  scratch_directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cenote-catalog-XXXXXX").string();
    BOOST_REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path metadata() const { return path_ / "metadata"; }

 private:
  std::filesystem::path path_;
};

inline constexpr std::uint64_t store_id = 4711;

inline catalog_options options_of(const scratch_directory& directory, bool read_only = false) {
  return {directory.path().string(), store_id, std::uint64_t{4} << 20, read_only};
}

inline catalog open_catalog(const scratch_directory& directory, bool read_only = false) {
  auto opened = catalog::open(options_of(directory, read_only));
  BOOST_REQUIRE_MESSAGE(opened.has_value(), (opened ? std::string() : opened.error().describe()));
  return std::move(*opened);
}

inline instance_spec spec_of(const std::string& id) {
  instance_spec spec;
  spec.id = id;
  spec.model = "m";
  spec.dtype = "bf16";
  spec.layout = "nhd";
  spec.tokens_per_block = 16;
  spec.groups = {{"full", {{"rank0", 4096}, {"rank1", 4096}}}};
  spec.hash_scheme = "sha256";
  return spec;
}

/// Block `number` of an instance; every field follows from the three numbers.
inline stored_block block_of(const numbered_identity& instance, std::uint64_t number, std::uint32_t version = 0) {
  std::byte name[32] = {};
  std::memcpy(name, &number, sizeof number);
  stored_block block;
  block.group = static_cast<std::uint32_t>(number % 3);
  block.full = full_key(std::span(name).first(number % 2 == 0 ? 32 : 8));
  block.key = reduce_key(block.full.view(), block.group);
  block.instance = instance;
  block.touch = wall_time_of(1'700'000'000 + version);
  block.offset = (number + 1) * 65'536 + version * std::uint64_t{1 << 30};
  block.bytes = 60'000;
  block.checksum = (number * 31 + version) * 0x9e3779b97f4a7c15ULL;
  return block;
}

inline catalog_change put(const stored_block& block) {
  return {catalog_change::kind::put, block};
}
inline catalog_change erase(const stored_block& block) {
  return {catalog_change::kind::erase, block};
}

using contents = std::map<std::pair<instance_identity, block_key>, stored_block>;

/// All that is sound; nothing may be damaged.
inline contents contents_of(const catalog& catalog) {
  contents found;
  const auto counts = catalog.load([&](const stored_block& block) { found[{block.instance, block.key}] = block; });
  BOOST_REQUIRE(counts.has_value());
  BOOST_REQUIRE(counts->damaged == 0U);
  BOOST_REQUIRE(counts->blocks == found.size());
  return found;
}

}  // namespace cenote::nvme::testing
