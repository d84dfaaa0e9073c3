#include "tiers/nvme/catalog.hpp"

#include <poll.h>
#include <rocksdb/db.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "core/unique_fd.hpp"
#include "tests/unit/tiers/nvme/catalog_fixture.hpp"

namespace cenote::nvme {

using namespace testing;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::map<std::string, std::string> files_of(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& at : fs::directory_iterator(directory)) files[at.path().filename().string()] = text_of(at.path());
  return files;
}

void restore(const fs::path& directory, const std::map<std::string, std::string>& files) {
  fs::remove_all(directory);
  fs::create_directory(directory);
  for (const auto& [name, text] : files) std::ofstream(directory / name, std::ios::binary) << text;
}

std::unique_ptr<rocksdb::DB> open_directly(const scratch_directory& directory) {
  rocksdb::DB* opened = nullptr;
  BOOST_REQUIRE(rocksdb::DB::Open(rocksdb::Options(), directory.metadata().string(), &opened).ok());
  return std::unique_ptr<rocksdb::DB>(opened);
}

void set_format(const scratch_directory& directory, const std::string& value) {
  BOOST_REQUIRE(open_directly(directory)->Put(rocksdb::WriteOptions(), "format", value).ok());
}

/// Some in tables, some in the log; block 0 to 399 of instance 1 and 2, in two versions.
contents filled(const scratch_directory& directory) {
  contents written;
  for (std::uint32_t version = 0; version < 2; ++version) {
    auto held = open_catalog(directory);  // every opening turns the log into a table
    BOOST_REQUIRE(held.put_instance(spec_of("one")).has_value());
    for (std::uint64_t i = 0; i < 400; i += version + 1) {
      const catalog_change changes[] = {put(block_of(1, i, version)), put(block_of(2, i, version))};
      BOOST_REQUIRE(held.apply(changes).has_value());
      for (const auto& change : changes) written[{change.block.instance, change.block.key}] = change.block;
    }
  }
  return written;
}

/// Whether a block that was read was written once, in either version.
bool was_written(const stored_block& block) {
  const std::uint64_t number = block.offset % (1 << 30) / 65'536 - 1;
  return number < 400 && (block == block_of(block.instance, number, 0) || block == block_of(block.instance, number, 1));
}

/// Opens what was damaged: whatever comes out was written, or nothing comes out. The number of blocks.
std::uint64_t read_damaged(const scratch_directory& directory) {
  const auto opened = catalog::open(options_of(directory));
  if (!opened) {
    BOOST_TEST_INFO(opened.error().describe());
    BOOST_REQUIRE((opened.error().code() == error_code::malformed || opened.error().code() == error_code::system ||
                   opened.error().code() == error_code::layout_mismatch));
    return 0;
  }
  std::uint64_t sound = 0;
  const auto counts = opened->load([&](const stored_block& block) {
    BOOST_REQUIRE(was_written(block));
    ++sound;
  });
  if (!counts) BOOST_REQUIRE((counts.error().code() == error_code::malformed));
  const auto specs = opened->instances();
  if (specs) BOOST_REQUIRE(std::ranges::all_of(*specs, [](const auto& s) { return s.second == spec_of("one"); }));
  return sound;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nvme_catalog)

BOOST_AUTO_TEST_CASE(what_was_applied_is_there_again) {
  const scratch_directory at;
  const contents written = filled(at);
  {
    auto held = open_catalog(at);
    BOOST_TEST((contents_of(held) == written));
    const catalog_change changes[] = {erase(block_of(1, 5)), put(block_of(1, 7, 9))};
    BOOST_REQUIRE(held.apply(changes).has_value());
  }
  const auto found = contents_of(open_catalog(at));
  BOOST_TEST(found.size() == written.size() - 1);
  BOOST_TEST((found.at({numbered_identity(1), block_of(1, 7).key}) == block_of(1, 7, 9)));
}

BOOST_AUTO_TEST_CASE(only_the_owner_may_read) {
  const scratch_directory at;
  const auto written = filled(at);
  const auto held = open_catalog(at);
  struct stat status {};
  BOOST_REQUIRE(::stat(at.metadata().c_str(), &status) == 0);
  BOOST_TEST((status.st_mode & 0777) == 0700U);
  for (const auto& file : fs::directory_iterator(at.metadata())) {
    BOOST_REQUIRE(::stat(file.path().c_str(), &status) == 0);
    BOOST_TEST_CONTEXT(file.path()) BOOST_TEST((status.st_mode & 0777) == 0600U);
  }
}

instance_identity neighbour(instance_identity identity, int step) {
  identity.bytes.back() = static_cast<std::byte>(std::to_integer<int>(identity.bytes.back()) + step);
  return identity;
}

instance_identity last_identity() {
  instance_identity identity;
  identity.bytes.fill(std::byte{0xff});
  return identity;
}

BOOST_AUTO_TEST_CASE(an_instance_is_remembered_until_its_name_is_erased) {
  const scratch_directory at;
  const instance_identity one = identity_of(spec_of("one"));
  const instance_identity two = identity_of(spec_of("two"));
  BOOST_TEST(one != two);
  {
    auto held = open_catalog(at);
    BOOST_REQUIRE(held.put_instance(spec_of("one")).has_value());
    BOOST_REQUIRE(held.put_instance(spec_of("two")).has_value());
    BOOST_TEST(held.instances()->size() == 2U);
    std::vector<catalog_change> changes;
    for (std::uint64_t i = 0; i < 100; ++i) {
      for (const instance_identity& instance : {neighbour(one, -1), one, neighbour(one, 1), last_identity()}) {
        changes.push_back(put(block_of(instance, i)));
      }
    }
    auto extreme = block_of(one, 1);
    extreme.key = {~std::uint64_t{0}, ~std::uint64_t{0}};
    changes.push_back(put(extreme));
    changes.push_back({catalog_change::kind::erase_blocks, block_of(one, 0)});
    changes.push_back({catalog_change::kind::erase_blocks, block_of(last_identity(), 0)});
    changes.push_back(put(block_of(one, 500)));  // again, after all were erased
    BOOST_REQUIRE(held.apply(changes).has_value());
  }
  auto held = open_catalog(at);
  const auto found = contents_of(held);
  BOOST_TEST(found.size() == 201U);
  BOOST_TEST(found.contains({one, block_of(one, 500).key}));
  BOOST_TEST(held.instances()->size() == 2U);
  BOOST_REQUIRE(held.apply(std::vector{catalog_change{catalog_change::kind::erase_name, block_of(one, 0)}}));
  BOOST_TEST(contents_of(held).size() == 201U);
  const auto specs = held.instances();
  BOOST_REQUIRE(specs->size() == 1U);
  BOOST_TEST((specs->front() == std::pair(two, spec_of("two"))));
}

BOOST_AUTO_TEST_CASE(a_block_that_makes_no_sense_is_refused_with_its_whole_batch) {
  const scratch_directory at;
  auto held = open_catalog(at);
  auto block = block_of(1, 1);
  block.full.size = 7;
  const catalog_change changes[] = {put(block_of(1, 2)), put(block)};
  const auto refused = held.apply(changes);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::invalid_argument));
  BOOST_TEST(contents_of(held).empty());
}

BOOST_AUTO_TEST_CASE(a_later_version_is_refused_and_nothing_is_changed) {
  const scratch_directory at;
  { open_catalog(at); }
  set_format(at, std::string("cntcatlg\x03\0\0\0more", 16));
  const auto before = files_of(at.metadata());
  const auto refused = catalog::open(options_of(at));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::layout_mismatch));
  BOOST_TEST(refused.error().message().find("version 3") != std::string::npos, refused.error().message());
  BOOST_TEST((files_of(at.metadata()) == before));
  set_format(at, "something else");
  BOOST_TEST((catalog::open(options_of(at)).error().code() == error_code::malformed));
}

BOOST_AUTO_TEST_CASE(metadata_of_an_earlier_version_is_of_no_use_and_may_be_set_aside) {
  const scratch_directory at;
  { open_catalog(at); }
  set_format(at, std::string("cntcatlg\x01\0\0\0more", 16));
  const auto refused = catalog::open(options_of(at));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::malformed));
  BOOST_TEST(refused.error().message().find("version 1, of an earlier release") != std::string::npos,
             refused.error().message());
}

BOOST_AUTO_TEST_CASE(metadata_of_another_data_file_is_refused) {
  const scratch_directory at;
  const auto written = filled(at);
  auto options = options_of(at);
  options.store_id = 4712;
  const auto refused = catalog::open(options);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::malformed));
  BOOST_TEST(refused.error().message().find("another data file") != std::string::npos);
  BOOST_TEST((contents_of(open_catalog(at)) == written));
}

BOOST_AUTO_TEST_CASE(to_look_takes_no_lock_and_writes_nothing) {
  const scratch_directory at;
  BOOST_TEST(!catalog::open(options_of(at, true)).has_value());
  BOOST_TEST(!fs::exists(at.metadata()));
  const auto written = filled(at);
  const auto before = files_of(at.metadata());
  auto one = open_catalog(at, true);
  const auto two = open_catalog(at, true);
  BOOST_TEST((contents_of(one) == written));
  BOOST_TEST((contents_of(two) == written));
  const catalog_change change[] = {put(block_of(1, 1))};
  BOOST_TEST(!one.apply(change).has_value());
  BOOST_TEST((files_of(at.metadata()) == before));
}

BOOST_AUTO_TEST_CASE(two_nodes_cannot_have_it) {
  const scratch_directory at;
  const auto held = open_catalog(at);
  const auto refused = catalog::open(options_of(at));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::system));
}

#ifndef CENOTE_TSAN  // a fork of a process with threads is more than the thread sanitizer bears
BOOST_AUTO_TEST_CASE(a_killed_process_has_kept_what_it_applied) {
  const scratch_directory at;
  const contents written = filled(at);
  int ends[2] = {};
  BOOST_REQUIRE(::pipe(ends) == 0);
  const unique_fd reader(ends[0]);
  unique_fd writer(ends[1]);
  const pid_t child = ::fork();
  BOOST_REQUIRE(child >= 0);
  if (child == 0) {
    auto held = catalog::open(options_of(at));
    for (std::uint64_t i = 400; held && i < 600; ++i) {
      const catalog_change change[] = {put(block_of(1, i))};
      if (!held->apply(change)) ::_exit(3);
    }
    const char done = held ? 'y' : 'n';
    if (::write(writer.get(), &done, 1) != 1) ::_exit(4);
    while (true) ::pause();
  }
  writer.reset();
  char done = 0;
  pollfd ready{reader.get(), POLLIN, 0};
  const bool told = ::poll(&ready, 1, 30'000) == 1 && ::read(reader.get(), &done, 1) == 1;
  BOOST_REQUIRE(::kill(child, SIGKILL) == 0);
  BOOST_REQUIRE(::waitpid(child, nullptr, 0) == child);
  BOOST_REQUIRE(told);
  BOOST_REQUIRE(done == 'y');
  const auto found = contents_of(open_catalog(at));
  BOOST_TEST(found.size() == written.size() + 200);
  for (std::uint64_t i = 400; i < 600; ++i)
    BOOST_REQUIRE((found.at({numbered_identity(1), block_of(1, i).key}) == block_of(1, i)));
}
#endif

BOOST_AUTO_TEST_CASE(flipped_bits_never_give_a_block_that_was_not_written) {
  const scratch_directory at;
  const contents written = filled(at);
  const auto sound = files_of(at.metadata());
  std::mt19937_64 random(3);
  for (const auto& [name, text] : sound) {
    for (int round = 0; round < 6 && !text.empty(); ++round) {
      auto files = sound;
      const int flips = round % 2 == 0 ? 1 : 20;
      for (int i = 0; i < flips; ++i) files[name][random() % text.size()] ^= static_cast<char>(1 << random() % 8);
      restore(at.metadata(), files);
      BOOST_TEST_CONTEXT(name << ", round " << round) read_damaged(at);
    }
  }
  restore(at.metadata(), sound);
  BOOST_TEST((contents_of(open_catalog(at)) == written));
}

BOOST_AUTO_TEST_CASE(a_damaged_record_is_counted_and_left_out) {
  const scratch_directory at;
  { const auto written = filled(at); }
  std::mt19937_64 random(5);
  {
    // Damage that RocksDB's own checksums do not see: in values, in keys, and values cut short.
    const auto db = open_directly(at);
    const std::unique_ptr<rocksdb::Iterator> record(db->NewIterator(rocksdb::ReadOptions()));
    for (record->Seek("b"); record->Valid() && record->key().starts_with("b"); record->Next()) {
      std::string key = record->key().ToString();
      std::string value = record->value().ToString();
      const auto what = random() % 4;
      if (what == 0) continue;
      if (what == 1) value[random() % value.size()] ^= static_cast<char>(1 << random() % 8);
      if (what == 2) key[1 + random() % 24] ^= static_cast<char>(1 << random() % 8);
      if (what == 3) value.resize(random() % value.size());
      BOOST_REQUIRE(db->Delete(rocksdb::WriteOptions(), record->key()).ok());
      BOOST_REQUIRE(db->Put(rocksdb::WriteOptions(), key, value).ok());
    }
  }
  const auto held = open_catalog(at);
  const auto counts = held.load([](const stored_block& block) { BOOST_REQUIRE(was_written(block)); });
  BOOST_REQUIRE(counts.has_value());
  BOOST_TEST(counts->blocks + counts->damaged == 800U);
  BOOST_TEST((counts->damaged > 500 && counts->damaged < 700));
}

BOOST_AUTO_TEST_CASE(a_log_that_was_cut_off_costs_its_end_only) {
  const scratch_directory at;
  const contents written = filled(at);
  const auto sound = files_of(at.metadata());
  const auto log = std::ranges::find_if(
      sound, [](const auto& file) { return file.first.ends_with(".log") && file.second.size() > 1000; });
  BOOST_REQUIRE(log != sound.end());
  std::uint64_t before = 0;
  for (const std::size_t keep : {std::size_t{0}, log->second.size() / 3, log->second.size() - 1}) {
    auto files = sound;
    files[log->first].resize(keep);
    restore(at.metadata(), files);
    BOOST_TEST(read_damaged(at) >= 800U);  // the first version of each lies in a table
    std::uint64_t second = 0;
    const auto held = open_catalog(at);
    for (const auto& [key, block] : contents_of(held)) second += count_of(block.touch) % 10;
    BOOST_TEST((keep == 0 ? second == 0 : second > before));
    before = second;
  }
  BOOST_TEST(before == 398U);  // 200 blocks of two instances less the last batch
}

BOOST_AUTO_TEST_CASE(damaged_metadata_is_set_aside_and_one_such_is_kept) {
  const scratch_directory at;
  BOOST_REQUIRE(catalog::set_aside(at.path().string()).has_value());
  for (int round = 1; round <= 3; ++round) {
    {
      const auto written = filled(at);
    }
    std::ofstream(at.metadata() / "CURRENT") << "nonsense\n";
    const auto refused = catalog::open(options_of(at));
    BOOST_REQUIRE(!refused.has_value());
    BOOST_TEST((refused.error().code() == error_code::malformed), refused.error().describe());
    BOOST_REQUIRE(catalog::set_aside(at.path().string()).has_value());
    std::set<std::string> names;
    for (const auto& left : fs::directory_iterator(at.path())) names.insert(left.path().filename().string());
    BOOST_TEST((names == std::set{"metadata.damaged-" + std::to_string(round)}));
  }
  BOOST_TEST(contents_of(open_catalog(at)).empty());
}

BOOST_AUTO_TEST_CASE(it_stays_small_however_much_is_put_and_erased) {
  const scratch_directory at;
  auto held = open_catalog(at);
  std::mt19937_64 random(11);
  std::uint64_t most = 0;
  contents model;
  std::vector<catalog_change> changes;
  for (std::uint32_t step = 0; step < 100'000; ++step) {
    const auto block = block_of(1, random() % 2'000, step % 1000);
    if (random() % 3 == 0) {
      changes.push_back(erase(block));
      model.erase({block.instance, block.key});
    } else {
      changes.push_back(put(block));
      model[{block.instance, block.key}] = block;
    }
    if (changes.size() < 20) continue;
    BOOST_REQUIRE(held.apply(changes).has_value());
    changes.clear();
    most = std::max(most, held.disk_bytes());
  }
  BOOST_TEST_MESSAGE("at most " << most << " bytes on disk");
  BOOST_TEST(most < options_of(at).max_bytes);
  BOOST_TEST((contents_of(held) == model));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
