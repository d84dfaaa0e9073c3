// Blocks of an instance.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

#include "commands/services/admin/session.hpp"
#include "commands/table.hpp"
#include "transport/manager/proto/meta.pb.h"

namespace cenote::admin {

namespace {

using nlohmann::json;

constexpr std::size_t byte_key_bytes = 16;

struct key_terms {
  std::string instance;
  std::vector<std::string> keys;
  bool is_bytes = false;

  void add_to(CLI::App& command) {
    command.add_option("instance", instance)->required();
    command.add_option("keys", keys, "Keys of blocks; behind -- if one is negative")->required();
    command.add_flag("--bytes", is_bytes, "Keys are 16 bytes, as 32 hexadecimal digits");
  }
};

result<std::string> byte_key(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size() && text.size() == 2 * byte_key_bytes; i += 2) {
    unsigned value = 0;
    const char* const end = text.data() + i + 2;
    const auto read = std::from_chars(text.data() + i, end, value, 16);
    if (read.ec != std::errc() || read.ptr != end) break;
    bytes.push_back(static_cast<char>(value));
  }
  if (bytes.size() == byte_key_bytes) return bytes;
  return fail(error_code::invalid_argument, text + ": a key is 32 hexadecimal digits");
}

result<std::int64_t> number_key(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec == std::errc() && read.ptr == end && !text.empty()) return value;
  return fail(error_code::invalid_argument, text + ": a key is a whole number of 64 bits; --bytes takes 16 bytes");
}

template <class Request>
result<Request> request_of(const key_terms& terms) {
  Request request;
  request.set_instance_id(terms.instance);
  for (const std::string& text : terms.keys) {
    if (terms.is_bytes) {
      auto key = byte_key(text);
      if (!key) return std::unexpected(key.error());
      request.add_byte_keys(std::move(*key));
    } else {
      const auto key = number_key(text);
      if (!key) return std::unexpected(key.error());
      request.add_block_keys(*key);
    }
  }
  return request;
}

std::string uris_text(const wire::CacheLocationVector& locations) {
  std::string text;
  for (const auto& location : locations.locations()) {
    for (const auto& spec : location.location_specs()) text += (text.empty() ? "" : ", ") + spec.uri();
  }
  return text.empty() ? "-" : text;
}

std::string meta_page(const key_terms& terms, const wire::admin::GetCacheMetaResponse& answer) {
  table rows({"KEY", "STATE", ">LOCATIONS", "ADDRESSES"});
  for (int i = 0; i < answer.metas_size(); ++i) {
    const json meta = json::parse(answer.metas(i), nullptr, false);
    const auto place = static_cast<std::size_t>(i);
    const bool has_locations = i < answer.replica_locations_size();
    rows.add({place < terms.keys.size() ? terms.keys[place] : "?", text_of(meta, "status"),
              std::to_string(has_locations ? answer.replica_locations(i).locations_size() : 0),
              has_locations ? uris_text(answer.replica_locations(i)) : "-"});
  }
  return rows.text();
}

result<> show_meta(admin_session& session, const key_terms& terms) {
  const auto request = request_of<wire::GetCacheMetaRequest>(terms);
  if (!request) return std::unexpected(request.error());
  const auto answer = session.ask<wire::admin::GetCacheMetaResponse>(rpc::admin_get_cache_meta, *request);
  if (!answer) return std::unexpected(answer.error());
  if (session.is_json()) {
    print_json(without_header(*answer));
  } else {
    fmt::print("{}", meta_page(terms, *answer));
  }
  return {};
}

result<> remove_keys(admin_session& session, const key_terms& terms) {
  const auto request = request_of<wire::RemoveCacheRequest>(terms);
  if (!request) return std::unexpected(request.error());
  return session.change(
      rpc::admin_remove_cache, *request,
      fmt::format("{} keys of {} are not served any more; their space goes later", terms.keys.size(), terms.instance));
}

struct trim_terms {
  std::string instance;
  bool is_all = false, is_records = false;
  std::optional<std::int32_t> begin, end;
};

result<> trim(admin_session& session, const trim_terms& terms) {
  const bool is_period = terms.begin || terms.end;
  if (int(terms.is_all) + int(terms.is_records) + int(is_period) != 1) {
    return fail(error_code::invalid_argument, "what goes: --all, --records, or --since and --until");
  }
  wire::meta::TrimCacheRequest request;
  request.set_instance_id(terms.instance);
  request.set_strategy(terms.is_all       ? wire::meta::TS_REMOVE_ALL_CACHE
                       : terms.is_records ? wire::meta::TS_REMOVE_ALL_META
                                          : wire::meta::TS_TIMESTAMP);
  request.set_begin_timestamp(terms.begin.value_or(0));
  request.set_end_timestamp(terms.end.value_or(is_period ? INT32_MAX : 0));
  const auto meta = session.with_meta();
  if (!meta) return std::unexpected(meta.error());
  return meta->change<wire::meta::CommonResponse>(rpc::trim_cache, request,
                                                  fmt::format("instance {} is trimmed", terms.instance));
}

}  // namespace

void add_cache(CLI::App& admin) {
  CLI::App& family = add_family(admin, "cache", "Blocks of an instance");
  const auto keys = std::make_shared<key_terms>();
  keys->add_to(add_action(family, "meta", "States and addresses of blocks",
                          [keys](admin_session& s) { return show_meta(s, *keys); }));
  keys->add_to(add_action(family, "remove", "Blocks that no read serves any more",
                          [keys](admin_session& s) { return remove_keys(s, *keys); }));
  const auto terms = std::make_shared<trim_terms>();
  CLI::App& command = add_action(family, "trim", "Removes many blocks, by MetaService",
                                 [terms](admin_session& s) { return trim(s, *terms); });
  command.add_option("instance", terms->instance)->required();
  command.add_flag("--all", terms->is_all, "All blocks, with their bytes");
  command.add_flag("--records", terms->is_records, "All records; bytes stay (of a storage that was wiped)");
  command.add_option("--since", terms->begin, "What was written from this time on, in Unix seconds");
  command.add_option("--until", terms->end, "And up to this one");
}

}  // namespace cenote::admin
