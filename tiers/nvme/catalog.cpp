#include "tiers/nvme/catalog.hpp"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/memtablerep.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <filesystem>
#include <optional>

#include "core/checksum.hpp"

namespace cenote::nvme {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

constexpr std::uint64_t format_magic = 0x676c746163746e63;  // "cntcatlg"
constexpr std::uint32_t format_version = 2;
constexpr std::uint8_t record_version = 1;
constexpr const char* format_key = "format";

// --- Records -------------------------------------------------------------------------------------------------------
//
// key:    'b' | instance 32 | key.hi, big-endian | key.lo, big-endian
// value:  version 1 | group 4 | touch 4 | offset 8 | bytes 8 | checksum 8 | size of the full key 1 | full key | check 8

constexpr std::size_t identity_bytes = sizeof(instance_identity);
constexpr std::size_t block_key_bytes = 1 + identity_bytes + 16;
constexpr std::size_t full_key_at = 1 + 4 + 4 + 8 + 8 + 8 + 1;
constexpr std::size_t check_bytes = 8;
constexpr std::size_t max_value_bytes = full_key_at + max_key_bytes + check_bytes;

template <class T>
void put_at(char* bytes, T value) {
  std::memcpy(bytes, &value, sizeof value);
}

template <class T>
T get_at(const char* bytes) {
  T value{};
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Big-endian, so that RocksDB's order is the order of numbers.
void put_ordered(char* bytes, std::uint64_t value) {
  put_at(bytes, __builtin_bswap64(value));
}
std::uint64_t get_ordered(const char* bytes) {
  return __builtin_bswap64(get_at<std::uint64_t>(bytes));
}

using instance_key = std::array<char, 1 + identity_bytes>;
using record_key = std::array<char, block_key_bytes>;

instance_key key_of_instance(char kind, const instance_identity& instance) {
  instance_key key{kind};
  put_at(key.data() + 1, instance);
  return key;
}

record_key key_of_block(const instance_identity& instance, const block_key& block) {
  record_key key{'b'};
  put_at(key.data() + 1, instance);
  put_ordered(key.data() + 1 + identity_bytes, block.hi);
  put_ordered(key.data() + 1 + identity_bytes + 8, block.lo);
  return key;
}

template <std::size_t Size>
rocksdb::Slice slice_of(const std::array<char, Size>& bytes) {
  return {bytes.data(), Size};
}

std::uint64_t check_of(const rocksdb::Slice& key, const char* value, std::size_t size) {
  return checksum_of(value, size, checksum_of(key.data(), key.size()));
}

// The check at the end of a value, for a value of any kind.
bool is_sound(const rocksdb::Slice& key, const rocksdb::Slice& value) {
  if (value.size() < check_bytes) return false;
  const std::size_t size = value.size() - check_bytes;
  return get_at<std::uint64_t>(value.data() + size) == check_of(key, value.data(), size);
}

bool makes_sense(const stored_block& block) {
  const auto unused = std::span(block.full.bytes).subspan(std::min<std::size_t>(block.full.size, max_key_bytes));
  return block.key != block_key{} && block.full.size >= min_key_bytes && block.full.size <= max_key_bytes &&
         std::ranges::all_of(unused, [](std::byte b) { return b == std::byte{}; }) && block.group < max_groups &&
         block.bytes != 0 && block.bytes <= max_block_bytes && block.offset <= ~std::uint64_t{0} - block.bytes;
}

rocksdb::Slice encode_block(const rocksdb::Slice& key, const stored_block& block,
                            std::array<char, max_value_bytes>& out) {
  char* at = out.data();
  put_at(at, record_version);
  put_at(at + 1, block.group);
  put_at(at + 5, count_of(block.touch));
  put_at(at + 9, block.offset);
  put_at(at + 17, block.bytes);
  put_at(at + 25, block.checksum);
  put_at(at + 33, block.full.size);
  std::memcpy(at + full_key_at, block.full.bytes.data(), block.full.size);
  const std::size_t size = full_key_at + block.full.size;
  put_at(at + size, check_of(key, at, size));
  return {at, size + check_bytes};
}

bool decode_block(const rocksdb::Slice& key, const rocksdb::Slice& value, stored_block& block) {
  if (key.size() != block_key_bytes || value.size() < full_key_at + min_key_bytes + check_bytes) return false;
  const char* at = value.data();
  const auto key_size = get_at<std::uint8_t>(at + 33);
  if (get_at<std::uint8_t>(at) != record_version || key_size > max_key_bytes ||
      value.size() != full_key_at + key_size + check_bytes || !is_sound(key, value)) {
    return false;
  }
  block.instance = get_at<instance_identity>(key.data() + 1);
  block.key = {get_ordered(key.data() + 1 + identity_bytes), get_ordered(key.data() + 1 + identity_bytes + 8)};
  block.group = get_at<std::uint32_t>(at + 1);
  block.touch = wall_time_of(get_at<std::uint32_t>(at + 5));
  block.offset = get_at<std::uint64_t>(at + 9);
  block.bytes = get_at<std::uint64_t>(at + 17);
  block.checksum = get_at<std::uint64_t>(at + 25);
  block.full = full_key(std::as_bytes(std::span(at + full_key_at, key_size)));
  return makes_sense(block);
}

std::vector<std::byte> encoded(const instance_spec& spec) {
  byte_writer out;
  encode(out, spec);
  return std::move(out).take();
}

std::optional<instance_spec> decode_instance(const rocksdb::Slice& key, const rocksdb::Slice& value) {
  if (key.size() != std::tuple_size_v<instance_key> || !is_sound(key, value)) return std::nullopt;
  byte_reader in(std::as_bytes(std::span(value.data(), value.size() - check_bytes)));
  auto spec = decode_instance_spec(in);
  if (!spec || in.remaining() != 0 || identity_of(*spec) != get_at<instance_identity>(key.data() + 1))
    return std::nullopt;
  return std::move(*spec);
}

rocksdb::Status erase_blocks(rocksdb::WriteBatch& batch, const instance_identity& instance) {
  // The end of a range is outside it: one more byte than any key of the instance's prefix can start with.
  const auto first = key_of_instance('b', instance);
  auto last = std::string(first.data(), first.size());
  last.append(17, '\xff');
  return batch.DeleteRange(slice_of(first), last);
}

// --- RocksDB -------------------------------------------------------------------------------------------------------

/// The local file system, with files that only their owner may read.
class private_files : public rocksdb::FileSystemWrapper {
 public:
  private_files() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  [[nodiscard]] const char* Name() const override { return "cenote-private-files"; }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    return restricted(name, FileSystemWrapper::NewWritableFile(name, options, file, debug));
  }
  rocksdb::IOStatus ReopenWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* debug) override {
    return restricted(name, FileSystemWrapper::ReopenWritableFile(name, options, file, debug));
  }
  rocksdb::IOStatus LockFile(const std::string& name, const rocksdb::IOOptions& options, rocksdb::FileLock** lock,
                             rocksdb::IODebugContext* debug) override {
    return restricted(name, FileSystemWrapper::LockFile(name, options, lock, debug));
  }

 private:
  static rocksdb::IOStatus restricted(const std::string& name, rocksdb::IOStatus status) {
    if (status.ok() && ::chmod(name.c_str(), 0600) != 0) return rocksdb::IOStatus::IOError("chmod", name);
    return status;
  }
};

/// RocksDB's own log goes nowhere: what matters comes back as a status.
class silent_logger : public rocksdb::Logger {
 public:
  silent_logger() : Logger(rocksdb::InfoLogLevel::FATAL_LEVEL) {}
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

std::string metadata_in(const std::string& directory) {
  return (fs::path(directory) / "metadata").string();
}

rocksdb::CompressionType best_compression() {
  const auto known = rocksdb::GetSupportedCompressions();
  return std::ranges::find(known, rocksdb::kLZ4Compression) != known.end() ? rocksdb::kLZ4Compression
                                                                           : rocksdb::kNoCompression;
}

rocksdb::Options rocksdb_options(std::uint64_t max_bytes, rocksdb::Env* env) {
  const std::uint64_t buffer = std::clamp(max_bytes / 8, 256 * kib, 16 * mib);
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(1 * mib);  // nothing is read but at the start
  table.block_size = 16 * kib;
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;

  rocksdb::Options options;
  options.env = env;
  options.info_log = std::make_shared<silent_logger>();
  options.create_if_missing = true;
  options.paranoid_checks = true;
  // Records stand alone: one that was lost must not take with it all that were written later.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  options.compression = best_compression();
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  // Nothing is read while records are written, so they need an order only when they go to a file: an append for each
  // and one sort at the end, instead of a place among all others for each. What a crash leaves is the log's affair as
  // before.
  options.memtable_factory = std::make_shared<rocksdb::VectorRepFactory>();
  options.allow_concurrent_memtable_write = false;  // one thread writes anyway
  options.write_buffer_size = buffer;
  options.arena_block_size = 64 * kib;
  options.max_total_wal_size = 2 * buffer;
  options.target_file_size_base = std::max(buffer, 2 * mib);
  options.max_bytes_for_level_base = 4 * buffer;
  options.level_compaction_dynamic_level_bytes = true;
  options.level0_file_num_compaction_trigger = 2;
  options.max_manifest_file_size = std::clamp(max_bytes / 32, 64 * kib, 4 * mib);
  options.max_background_jobs = 1;
  options.allow_fallocate = false;  // or files would take more than their size
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

std::unexpected<error> fail_rocksdb(const rocksdb::Status& status, const std::string& what) {
  if (status.IsCorruption() || status.IsPathNotFound()) {
    return fail(error_code::malformed, what + " is damaged: " + status.ToString());
  }
  if (status.IsNotSupported()) return fail(error_code::unsupported, what + ": " + status.ToString());
  if (status.IsNoSpace()) return fail(error_code::no_space, what + ": " + status.ToString());
  if (status.IsIOError()) return fail(error_code::system, what + ": " + status.ToString());
  return fail(error_code::internal, what + ": " + status.ToString());
}

std::unexpected<error> fail_open(const rocksdb::Status& status, const std::string& path) {
  // Column families, options or formats that this build does not know: written by a later version.
  if (status.IsInvalidArgument() || status.IsNotSupported()) {
    return fail(error_code::layout_mismatch,
                "the metadata in " + path + " was not written by this version of Cenote: " + status.ToString());
  }
  return fail_rocksdb(status, "the metadata in " + path);
}

/// Damaged lengths make RocksDB ask for absurd amounts of memory, and that throws.
template <class Call>
rocksdb::Status guarded(Call call) {
  try {
    return call();
  } catch (const std::exception& e) {
    return rocksdb::Status::Corruption("exception", e.what());
  }
}

rocksdb::ReadOptions scan_options() {
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = false;
  options.readahead_size = 1 * mib;
  return options;
}

std::string format_value(std::uint64_t store_id) {
  std::string value(8 + 4 + 8 + check_bytes, '\0');
  put_at(value.data(), format_magic);
  put_at(value.data() + 8, format_version);
  put_at(value.data() + 12, store_id);
  put_at(value.data() + 20, check_of(format_key, value.data(), 20));
  return value;
}

result<void> check_format(const rocksdb::Slice& value, std::uint64_t store_id, const std::string& path) {
  const std::string where = "the metadata in " + path;
  if (value.size() < 12 || get_at<std::uint64_t>(value.data()) != format_magic) {
    return fail(error_code::malformed, where + " is damaged: its format record is none of Cenote's");
  }
  // Magic and version stay where they are in every version; what follows may change.
  const auto version = get_at<std::uint32_t>(value.data() + 8);
  if (version < format_version) {
    return fail(error_code::malformed, where + " has version " + std::to_string(version) +
                                           ", of an earlier release; this build reads version " +
                                           std::to_string(format_version));
  }
  if (version != format_version) {
    return fail(error_code::layout_mismatch, where + " has version " + std::to_string(version) +
                                                 "; this build reads version " + std::to_string(format_version));
  }
  if (value.size() != 28 || !is_sound(format_key, value)) {
    return fail(error_code::malformed, where + " is damaged: the check of its format record fails");
  }
  if (get_at<std::uint64_t>(value.data() + 12) != store_id) {
    return fail(error_code::malformed, where + " belongs to another data file: its store id is " +
                                           std::to_string(get_at<std::uint64_t>(value.data() + 12)) + ", not " +
                                           std::to_string(store_id));
  }
  return {};
}

}  // namespace

instance_identity name_identity(const std::string& id) {
  return identity_of_bytes(std::as_bytes(std::span(id)));
}

struct catalog::state {
  catalog_options opened_with;
  std::string path;
  std::unique_ptr<rocksdb::Env> env;  ///< outlives the database
  std::unique_ptr<rocksdb::DB> db;
  bool waits_for_space = false;

  [[nodiscard]] std::string where() const { return "the metadata in " + path; }

  result<void> open_database(const catalog_options& options, bool read_only) {
    db.reset();
    const auto settings = rocksdb_options(options.max_bytes, env.get());
    rocksdb::DB* opened = nullptr;
    const auto status = guarded([&] {
      return read_only ? rocksdb::DB::OpenForReadOnly(settings, path, &opened)
                       : rocksdb::DB::Open(settings, path, &opened);
    });
    db.reset(opened);
    if (!status.ok()) return fail_open(status, path);
    return {};
  }

  /// True when the format is ours; false when there is no record at all.
  result<bool> has_format(std::uint64_t store_id) const {
    std::string value;
    const auto status = guarded([&] { return db->Get(rocksdb::ReadOptions(), format_key, &value); });
    if (status.ok()) {
      if (auto checked = check_format(value, store_id, path); !checked) return std::unexpected(checked.error());
      return true;
    }
    if (!status.IsNotFound()) return fail_rocksdb(status, where());
    const std::unique_ptr<rocksdb::Iterator> any(db->NewIterator(rocksdb::ReadOptions()));
    any->SeekToFirst();
    if (any->Valid()) return fail(error_code::malformed, where() + " is damaged: its format record is missing");
    if (!any->status().ok()) return fail_rocksdb(any->status(), where());
    return false;
  }

  /// On disk at once and out of the log: damage to the log must not cost all the rest.
  result<void> write_format(std::uint64_t store_id) const {
    auto status = db->Put(rocksdb::WriteOptions(), format_key, format_value(store_id));
    if (status.ok()) status = db->Flush(rocksdb::FlushOptions());
    if (!status.ok()) return fail_rocksdb(status, where());
    return {};
  }

  /// Calls `visit` for every record whose key starts with `kind`.
  template <class Each>
  result<void> scan(char kind, Each visit) const {
    if (!db) return fail(error_code::system, where() + " could not be opened again");
    const auto options = scan_options();
    const std::string first(1, kind);
    const auto status = guarded([&] {
      const std::unique_ptr<rocksdb::Iterator> at(db->NewIterator(options));
      for (at->Seek(first); at->Valid() && at->key().starts_with(first); at->Next()) visit(at->key(), at->value());
      return at->status();
    });
    if (!status.ok()) return fail_rocksdb(status, where());
    return {};
  }
};

catalog::catalog(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
catalog::catalog(catalog&&) noexcept = default;
catalog& catalog::operator=(catalog&&) noexcept = default;
catalog::~catalog() = default;

result<catalog> catalog::open(const catalog_options& options) {
  auto made = std::make_unique<state>();
  made->opened_with = options;
  made->path = metadata_in(options.directory);
  made->env = rocksdb::NewCompositeEnv(std::make_shared<private_files>());
  std::error_code ignored;
  const bool exists = fs::exists(fs::path(made->path) / "CURRENT", ignored);
  if (!exists && options.read_only) {
    return fail(error_code::system, "there is no metadata in " + made->path);
  }
  if (exists) {
    // Opening for writing changes files; so the version is looked at before.
    if (auto opened = made->open_database(options, true); !opened) return std::unexpected(opened.error());
    if (auto checked = made->has_format(options.store_id); !checked) return std::unexpected(checked.error());
    if (options.read_only) return catalog(std::move(made));
  } else if (::mkdir(made->path.c_str(), 0700) != 0 && errno != EEXIST) {
    if (errno == ENOSPC) return fail(error_code::no_space, "no room for the metadata in " + made->path);
    return fail_errno("mkdir", made->path);
  }
  if (::chmod(made->path.c_str(), 0700) != 0) return fail_errno("chmod", made->path);
  auto opened = made->open_database(options, false);
  made->waits_for_space = exists && !opened && opened.error().code() == error_code::no_space;
  if (made->waits_for_space) opened = made->open_database(options, true);
  if (!opened) return std::unexpected(opened.error());
  const auto formatted = made->has_format(options.store_id);
  if (!formatted) return std::unexpected(formatted.error());
  if (!*formatted) {
    if (made->waits_for_space)
      return fail(error_code::no_space, made->where() + " was never finished: the disk is full");
    if (auto written = made->write_format(options.store_id); !written) return std::unexpected(written.error());
  }
  return catalog(std::move(made));
}

result<load_counts> catalog::load(const std::function<void(const stored_block&)>& visit) const {
  load_counts counts;
  stored_block block;
  const auto scanned = state_->scan('b', [&](const rocksdb::Slice& key, const rocksdb::Slice& value) {
    if (!decode_block(key, value, block)) {
      ++counts.damaged;
      return;
    }
    ++counts.blocks;
    visit(block);
  });
  if (!scanned) return std::unexpected(scanned.error());
  return counts;
}

result<void> catalog::put_instance(const instance_spec& spec) {
  const auto bytes = encoded(spec);
  const auto key = key_of_instance('i', identity_of_bytes(bytes));
  std::string value(bytes.size() + check_bytes, '\0');
  std::memcpy(value.data(), bytes.data(), bytes.size());
  put_at(value.data() + bytes.size(), check_of(slice_of(key), value.data(), bytes.size()));
  if (!state_->db) return fail(error_code::system, state_->where() + " could not be opened again");
  const auto status = state_->db->Put(rocksdb::WriteOptions(), slice_of(key), value);
  if (!status.ok()) return fail_rocksdb(status, state_->where());
  return {};
}

result<std::vector<std::pair<instance_identity, instance_spec>>> catalog::instances() const {
  std::vector<std::pair<instance_identity, instance_spec>> found;
  const auto scanned = state_->scan('i', [&](const rocksdb::Slice& key, const rocksdb::Slice& value) {
    if (auto spec = decode_instance(key, value))
      found.emplace_back(get_at<instance_identity>(key.data() + 1), std::move(*spec));
  });
  if (!scanned) return std::unexpected(scanned.error());
  return found;
}

result<void> catalog::apply(std::span<const catalog_change> changes, bool synced) {
  rocksdb::WriteBatch batch;
  std::array<char, max_value_bytes> value{};
  for (const catalog_change& change : changes) {
    const stored_block& block = change.block;
    const auto key = key_of_block(block.instance, block.key);
    rocksdb::Status status;
    switch (change.what) {
      case catalog_change::kind::put:
        if (!makes_sense(block)) return fail(error_code::invalid_argument, "a block without a key, or of no size");
        status = batch.Put(slice_of(key), encode_block(slice_of(key), block, value));
        break;
      case catalog_change::kind::erase: status = batch.Delete(slice_of(key)); break;
      case catalog_change::kind::erase_blocks: status = erase_blocks(batch, block.instance); break;
      case catalog_change::kind::erase_named: {
        const auto specs = instances();
        if (!specs) return std::unexpected(specs.error());
        for (const auto& [identity, spec] : *specs) {
          if (status.ok() && name_identity(spec.id) == block.instance) status = erase_blocks(batch, identity);
        }
        break;
      }
      case catalog_change::kind::erase_name:
        status = batch.Delete(slice_of(key_of_instance('i', block.instance)));
        break;
      case catalog_change::kind::erase_everything: status = batch.DeleteRange("b", "c"); break;
    }
    if (!status.ok()) return fail_rocksdb(status, state_->where());
  }
  if (!state_->db) return fail(error_code::system, state_->where() + " could not be opened again");
  if (state_->waits_for_space) return fail(error_code::no_space, state_->where() + " cannot grow: the disk is full");
  rocksdb::WriteOptions how;
  how.sync = synced;
  const auto status = state_->db->Write(how, &batch);
  if (!status.ok()) return fail_rocksdb(status, state_->where());
  return {};
}

result<void> catalog::recover() {
  if (state_->db && !state_->waits_for_space && state_->db->Resume().ok()) return {};
  if (state_->opened_with.read_only) return fail(error_code::system, state_->where() + " is open for reading only");
  // There are errors that RocksDB does not come back from but by being opened anew.
  if (auto opened = state_->open_database(state_->opened_with, false); !opened) return opened;
  state_->waits_for_space = false;
  if (auto checked = state_->has_format(state_->opened_with.store_id); !checked)
    return std::unexpected(checked.error());
  return {};
}

bool catalog::waits_for_space() const noexcept {
  return state_->waits_for_space;
}

std::uint64_t catalog::sequence() const noexcept {
  return state_->db ? state_->db->GetLatestSequenceNumber() : 0;
}

std::uint64_t catalog::disk_bytes() const {
  std::uint64_t bytes = 0;
  std::error_code failed;
  for (fs::directory_iterator at(state_->path, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;  // RocksDB removes files while we look
    const auto size = at->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

result<void> catalog::set_aside(const std::string& directory) {
  constexpr std::string_view prefix = "metadata.damaged-";
  std::vector<fs::path> before;
  std::uint64_t number = 1;
  std::error_code failed;
  if (!fs::exists(metadata_in(directory), failed)) return {};
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::uint64_t have = 0;
    const auto parsed = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), have);
    if (parsed.ec != std::errc{} || parsed.ptr != name.data() + name.size()) continue;
    before.push_back(at->path());
    number = std::max(number, have + 1);
  }
  const fs::path aside = fs::path(directory) / (std::string(prefix) + std::to_string(number));
  if (!failed) fs::rename(metadata_in(directory), aside, failed);
  for (const fs::path& old : before) {
    if (!failed) fs::remove_all(old, failed);
  }
  if (failed)
    return fail(error_code::system, "cannot set aside the metadata in " + directory + ": " + failed.message());
  return {};
}

}  // namespace cenote::nvme
