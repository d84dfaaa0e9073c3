#include "commands/operator/nvme.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/checksum.hpp"
#include "core/stored_identity.hpp"
#include "core/units.hpp"
#include "tests/support/numbered_identity.hpp"
#include "tests/unit/tiers/nvme/temporary_directory.hpp"
#include "tiers/nvme/store.hpp"

namespace {

using namespace cenote;
namespace fs = std::filesystem;

constexpr std::uint64_t block_size = 64 * 1024;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

instance_spec spec_called(const std::string& id) {
  return {.id = id,
          .model = "a-model",
          .dtype = "bf16",
          .layout = "page_first",
          .tokens_per_block = 16,
          .groups = {{.name = "full", .parts = {{.name = "kv", .bytes = block_size}}}},
          .hash_scheme = "sha256",
          .fingerprint = {},
          .instance_group = {}};
}

/// A store as a node would leave it.
struct store_fixture {
  nvme::temporary_directory root;
  std::string path = root / "store";
  std::uint64_t slot = 0;

  store_fixture() {
    change([](const nvme::path_file&, nvme::catalog&) {});
  }

  template <class What>
  void change(What what) const {
    const auto file = nvme::path_file::open({.directory = path, .bytes = 8 * MiB, .holder = "/run/n", .patience = {}});
    BOOST_REQUIRE(file.has_value());
    auto known = nvme::catalog::open(
        {.directory = path, .store_id = file->store_id(), .max_bytes = 8 * MiB, .read_only = false});
    BOOST_REQUIRE(known.has_value());
    what(*file, *known);
  }

  void remember(const instance_spec& spec) const {
    change([&](const nvme::path_file&, nvme::catalog& known) { BOOST_REQUIRE(known.put_instance(spec).has_value()); });
  }

  /// The next block: 64 KiB of `fill`, last used at `touch`; what it says of itself.
  nvme::stored_block put(const numbered_identity& instance, char fill, std::uint32_t touch) {
    const std::string bytes(block_size, fill);
    scribble(nvme::path_file::data_offset + slot * block_size, bytes);
    nvme::stored_block block;
    block.full = full_key(std::as_bytes(std::span(bytes).first(16)));
    block.key = reduce_key(block.full.view(), 0);
    block.instance = instance;
    block.touch = wall_time_of(touch);
    block.offset = nvme::path_file::data_offset + slot++ * block_size;
    block.bytes = block_size;
    block.checksum = bind_checksum(checksum_of(bytes.data(), bytes.size()), instance, 0, block.full);
    apply({nvme::catalog_change::kind::put, block});
    return block;
  }

  void apply(const nvme::catalog_change& what) const {
    change([&](const nvme::path_file&, nvme::catalog& known) {
      BOOST_REQUIRE(known.apply(std::span(&what, 1)).has_value());
    });
  }

  void scribble(std::uint64_t offset, const std::string& bytes) const {
    std::fstream file(path + "/data", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    BOOST_REQUIRE(file.good());
  }

  [[nodiscard]] closed_store opened() const {
    auto store = closed_store::open(path);
    BOOST_REQUIRE_MESSAGE(store.has_value(), (store ? std::string() : store.error().describe()));
    return std::move(*store);
  }

  [[nodiscard]] store_summary summary() const {
    auto found = opened().summarize();
    BOOST_REQUIRE(found.has_value());
    return std::move(*found);
  }

  [[nodiscard]] verify_report verified(nvme::engine_kind kind = nvme::engine_kind::automatic) const {
    auto found = opened().verify(kind);
    BOOST_REQUIRE(found.has_value());
    return std::move(*found);
  }

  /// Every file with its time and contents.
  [[nodiscard]] std::map<std::string, std::pair<fs::file_time_type, std::string>> everything() const {
    std::map<std::string, std::pair<fs::file_time_type, std::string>> found;
    for (const auto& each : fs::recursive_directory_iterator(path)) {
      std::ifstream file(each.path(), std::ios::binary);
      const std::string bytes(each.is_directory() ? std::string()
                                                  : std::string(std::istreambuf_iterator<char>(file), {}));
      found[each.path().native()] = {each.last_write_time(), bytes};
    }
    return found;
  }
};

error why_not(const std::string& path) {
  auto store = closed_store::open(path);
  BOOST_REQUIRE(!store.has_value());
  BOOST_TEST_MESSAGE(store.error().describe());
  return store.error();
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(nvme_store, store_fixture)

BOOST_AUTO_TEST_CASE(sums_up_blocks_by_instance) {
  const auto spec = spec_called("known");
  const auto identity = identity_of(spec);
  remember(spec);
  remember(spec_called("empty"));
  put(identity, 'a', 2000);
  put(identity, 'b', 1000);
  put(77, 'c', 3000);

  const auto found = summary();
  BOOST_TEST(found.store_id != 0U);
  BOOST_TEST(found.data_bytes == 8 * MiB);
  BOOST_TEST(found.metadata_bytes > 0U);
  BOOST_TEST(found.sum.blocks == 3U);
  BOOST_TEST(found.sum.bytes == 3 * block_size);
  BOOST_TEST(found.sum.oldest == 1000U);
  BOOST_TEST(found.sum.newest == 3000U);
  BOOST_REQUIRE(found.instances.size() == 3U);
  for (const auto& each : found.instances) {
    BOOST_TEST(each.spec.has_value() == (each.identity != 77_identity));
    BOOST_TEST(each.sum.blocks == (each.identity == 77_identity ? 1U : each.identity == identity ? 2U : 0U));
  }
  const auto text = text_of(found);
  for (const auto* part : {"format 1", "8.0 MiB", "3 in 192.0 KiB", "1970-01-01T00:16:40Z", "known", "a-model", "full",
                           "unknown", "4d00000000000000", "0 damaged"}) {
    BOOST_TEST(has(text, part), part << " is missing in\n" << text);
  }
  const auto json = to_json(found);
  BOOST_TEST(json["blocks"] == 3);
  BOOST_TEST(json["instances"].size() == 3U);
}

BOOST_AUTO_TEST_CASE(an_empty_store_is_all_right) {
  BOOST_TEST(summary().sum.blocks == 0U);
  const auto report = verified();
  BOOST_TEST(report.all_right());
  BOOST_TEST(report.blocks == 0U);
  BOOST_TEST(to_json(summary())["oldest"].is_null());
}

BOOST_AUTO_TEST_CASE(verifies_with_every_engine) {
  for (char fill = 'a'; fill <= 'z'; ++fill) put(77, fill, 1);
  for (const auto kind : {nvme::engine_kind::automatic, nvme::engine_kind::threads}) {
    const auto report = verified(kind);
    BOOST_TEST(report.all_right());
    BOOST_TEST(report.blocks == 26U);
    BOOST_TEST(report.bytes == 26 * block_size);
    BOOST_TEST(report.gib_per_second() > 0);
  }
}

BOOST_AUTO_TEST_CASE(names_what_is_wrong) {
  const auto spec = spec_called("known");
  remember(spec);
  put(identity_of(spec), 'a', 1);
  const auto flipped = put(identity_of(spec), 'b', 1);
  scribble(flipped.offset + block_size - 1, "x");
  auto foreign = put(77, 'c', 1);  // the bytes are right, but for another instance
  apply({nvme::catalog_change::kind::erase, foreign});
  foreign.instance = 78_identity;
  apply({nvme::catalog_change::kind::put, foreign});
  auto outside = foreign;
  outside.instance = 79_identity;
  outside.offset = 8 * MiB;
  apply({nvme::catalog_change::kind::put, outside});
  auto nonsense = foreign;
  nonsense.instance = 80_identity;
  nonsense.bytes = 100;
  apply({nvme::catalog_change::kind::put, nonsense});

  const auto report = verified();
  BOOST_TEST(!report.all_right());
  BOOST_TEST(report.blocks == 5U);
  BOOST_TEST(report.wrong == 4U);
  BOOST_REQUIRE(report.named.size() == 4U);
  BOOST_TEST(report.named[0].instance == "known");
  BOOST_TEST(report.named[0].block.offset == flipped.offset);
  BOOST_TEST(report.named[1].instance == "unknown");
  const auto text = text_of(report);
  for (const auto* part : {"wrong     4 blocks", "62626262626262626262626262626262", "outside", "makes no sense"}) {
    BOOST_TEST(has(text, part), part << " is missing in\n" << text);
  }
  BOOST_TEST(to_json(report)["wrong_blocks"][0]["key"] == "62626262626262626262626262626262");
}

BOOST_AUTO_TEST_CASE(names_at_most_twenty) {
  for (char fill = 'a'; fill < 'a' + 25; ++fill) scribble(put(77, fill, 1).offset, "?");
  const auto report = verified();
  BOOST_TEST(report.wrong == 25U);
  BOOST_REQUIRE(report.named.size() == 20U);
  BOOST_TEST(report.named.front().block.offset == nvme::path_file::data_offset);
  BOOST_TEST(report.named.back().block.offset == nvme::path_file::data_offset + 19 * block_size);
  BOOST_TEST(has(text_of(report), "and 5 more"));
}

BOOST_AUTO_TEST_CASE(changes_nothing) {
  for (char fill = 'a'; fill < 'f'; ++fill) put(77, fill, 1);
  const auto before = everything();
  (void)summary();
  (void)verified();
  BOOST_TEST((before == everything()));
}

BOOST_AUTO_TEST_CASE(makes_nothing_where_no_store_is) {
  const auto empty = root / "empty";
  fs::create_directory(empty);
  BOOST_TEST(has(why_not(empty).message(), "holds no store"));
  BOOST_TEST(fs::is_empty(empty));
  BOOST_TEST(has(why_not(root / "missing").message(), "holds no store"));
  BOOST_TEST(!fs::exists(root / "missing"));
  std::ofstream(empty + "/data") << std::string(4096, '\0');
  BOOST_TEST(has(why_not(empty).message(), "blank"));
  std::ofstream(empty + "/data") << "somebody's diary";
  BOOST_TEST(int(why_not(empty).code()) == int(error_code::layout_mismatch));
}

BOOST_AUTO_TEST_CASE(refuses_without_metadata) {
  fs::remove_all(path + "/metadata");
  BOOST_TEST(has(why_not(path).message(), "no metadata"));
  BOOST_TEST(!fs::exists(path + "/metadata"));
}

BOOST_AUTO_TEST_CASE(refuses_another_version) {
  scribble(8, std::string("\x07\0\0\0", 4));
  const auto why = why_not(path);
  BOOST_TEST(int(why.code()) == int(error_code::layout_mismatch));
  BOOST_TEST(has(why.message(), "version 7"));
}

BOOST_AUTO_TEST_CASE(a_node_and_a_look_keep_each_other_away) {
  const auto node = [&] {
    return nvme::path_file::open({.directory = path, .bytes = 8 * MiB, .holder = "/run/n", .patience = {}});
  };
  {
    const auto held = node();
    BOOST_REQUIRE(held.has_value());
    BOOST_TEST(has(why_not(path).message(), "in use by the node /run/n (pid " + std::to_string(::getpid())));
  }
  {
    const auto first = opened();
    const auto second = opened();
    const auto refused = node();
    BOOST_REQUIRE(!refused.has_value());
    BOOST_TEST(int(refused.error().code()) == int(error_code::deadline_exceeded));
  }
  BOOST_TEST(node().has_value());
}

BOOST_AUTO_TEST_SUITE_END()
