#include "services/manager/store/rocks_journal.hpp"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <cstdarg>
#include <cstring>
#include <memory>
#include <utility>

#include "core/byte_io.hpp"

namespace cenote::manager {

namespace {

constexpr const char* epoch_name = "#epoch";
constexpr const char* format_name = "#format";
constexpr std::string_view format_text = "cenote manager 1";

std::unexpected<error> fail_status(const rocksdb::Status& status, std::string_view action) {
  return fail(error_code::system, std::string(action) + ": " + status.ToString());
}

/// The library's own log is a file beside the rows. On a full disk a second write to it ends the process where the
/// library is built with assertions, as Debian's is; and a failure comes as a status anyway.
class dropped_log final : public rocksdb::Logger {
 public:
  dropped_log() : Logger(rocksdb::InfoLogLevel::FATAL_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*values*/) override {}
};

rocksdb::Options options_of(const rocks_options& options) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(options.cache_bytes);
  rocksdb::Options chosen;
  chosen.create_if_missing = true;
  chosen.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  chosen.write_buffer_size = options.cache_bytes / 2;
  chosen.max_write_buffer_number = 2;
  chosen.max_background_jobs = 2;
  chosen.info_log = std::make_shared<dropped_log>();
  chosen.max_open_files = 256;
  return chosen;
}

}  // namespace

class rocks_journal::database {
 public:
  database(std::unique_ptr<rocksdb::DB> opened, const rocks_options& options) : rows_(std::move(opened)) {
    writing_.sync = options.is_synchronous;
  }

  [[nodiscard]] result<> check_format() {
    std::string text;
    const rocksdb::Status found = rows_->Get({}, format_name, &text);
    if (found.ok()) {
      if (text == format_text) return {};
      return fail(error_code::layout_mismatch, "the database is of another format or version: '" + text + "', not '" +
                                                   std::string(format_text) + "'");
    }
    if (!found.IsNotFound()) return fail_status(found, "reading the database's format");
    const std::unique_ptr<rocksdb::Iterator> first(rows_->NewIterator({}));
    first->SeekToFirst();
    if (first->Valid()) return fail(error_code::layout_mismatch, "the database is not a manager's");
    const rocksdb::Status written =
        rows_->Put(durable(), format_name, rocksdb::Slice(format_text.data(), format_text.size()));
    return written.ok() ? result<>() : fail_status(written, "writing the database's format");
  }

  [[nodiscard]] rocksdb::DB& rows() noexcept { return *rows_; }
  [[nodiscard]] const rocksdb::WriteOptions& writing() const noexcept { return writing_; }
  [[nodiscard]] static rocksdb::WriteOptions durable() {
    rocksdb::WriteOptions options;
    options.sync = true;
    return options;
  }

 private:
  std::unique_ptr<rocksdb::DB> rows_;
  rocksdb::WriteOptions writing_;
};

rocks_journal::rocks_journal(std::unique_ptr<database> opened) : database_(std::move(opened)) {}
rocks_journal::~rocks_journal() = default;

result<std::unique_ptr<rocks_journal>> rocks_journal::open(const rocks_options& options) {
  rocksdb::DB* opened = nullptr;
  if (const auto status = rocksdb::DB::Open(options_of(options), options.folder, &opened); !status.ok()) {
    return fail_status(status, "opening the journal in " + options.folder);
  }
  auto rows = std::make_unique<database>(std::unique_ptr<rocksdb::DB>(opened), options);
  if (auto checked = rows->check_format(); !checked) return std::unexpected(checked.error().in(options.folder));
  return std::unique_ptr<rocks_journal>(new rocks_journal(std::move(rows)));
}

result<std::uint32_t> rocks_journal::raise_epoch() {
  std::string text;
  const rocksdb::Status found = database_->rows().Get({}, epoch_name, &text);
  if (!found.ok() && !found.IsNotFound()) return fail_status(found, "reading the epoch");
  std::uint32_t epoch = 0;
  if (found.ok()) {
    if (text.size() != sizeof epoch) return fail(error_code::layout_mismatch, "the epoch in the journal is damaged");
    std::memcpy(&epoch, text.data(), sizeof epoch);
    if (epoch == ~std::uint32_t{0}) return fail(error_code::limit_exceeded, "the journal has had its last epoch");
  }
  ++epoch;
  const rocksdb::Slice value(reinterpret_cast<const char*>(&epoch), sizeof epoch);
  const rocksdb::Status written = database_->rows().Put(database::durable(), epoch_name, value);
  if (!written.ok()) return fail_status(written, "writing the epoch");
  return epoch;
}

result<> rocks_journal::write(std::span<const journal_row> changes) {
  if (changes.empty()) return {};
  rocksdb::WriteBatch batch;
  for (const journal_row& change : changes) {
    if (change.value) {
      batch.Put(change.name, *change.value);
    } else {
      batch.Delete(change.name);
    }
  }
  const rocksdb::Status written = database_->rows().Write(database_->writing(), &batch);
  return written.ok() ? result<>() : fail_status(written, "writing the journal");
}

result<> rocks_journal::read(row_kind kind, const row_visitor& visit) {
  const char first = static_cast<char>(kind);
  rocksdb::ReadOptions reading;
  reading.fill_cache = false;
  reading.readahead_size = std::size_t{2} << 20U;
  const std::unique_ptr<rocksdb::Iterator> row(database_->rows().NewIterator(reading));
  for (row->Seek(rocksdb::Slice(&first, 1)); row->Valid() && row->key().starts_with(rocksdb::Slice(&first, 1));
       row->Next()) {
    visit({row->key().data(), row->key().size()}, {row->value().data(), row->value().size()});
  }
  return row->status().ok() ? result<>() : fail_status(row->status(), "reading the journal");
}

}  // namespace cenote::manager
