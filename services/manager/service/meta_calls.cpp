#include "services/manager/service/meta_calls.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "services/manager/registry/storage_listing.hpp"
#include "services/manager/service/location_answer.hpp"
#include "services/manager/writes/finish_write.hpp"
#include "services/manager/writes/remove_blocks.hpp"
#include "services/manager/writes/start_write.hpp"

namespace cenote::manager {

namespace {

namespace meta = proto::meta;

/// The position of each storage in an order that is drawn by weights: the n-th of the random exponential times with
/// these rates (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
std::minstd_rand& dice() {
  thread_local std::minstd_rand random(std::random_device{}());
  return random;
}

std::string name_text(query_kind kind) {
  return std::to_string(static_cast<int>(kind));
}

rpc_outcome<query_kind> kind_of(int number, const instance_terms& terms) {
  if (number == 0) return terms.default_kind == query_kind::unspecified ? query_kind::prefix : terms.default_kind;
  if (number >= 1 && number <= 4) return static_cast<query_kind>(number);
  return refuse(answer_code::invalid_argument, "query_type is " + std::to_string(number) + "; right would be 0 to 4");
}

/// The keys without those that are masked.
rpc_outcome<std::vector<cache_key>> unmasked(std::vector<cache_key> keys, const proto::BlockMask& mask) {
  if (mask.info_case() == proto::BlockMask::INFO_NOT_SET) return keys;
  const auto masked = mask_of(mask_of(mask), keys.size(), "block_mask");
  if (!masked) return std::unexpected(masked.error());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!(*masked)[i]) keys[kept++] = keys[i];
  }
  keys.resize(kept);
  return keys;
}

template <class Request>
cache_key block_key(const Request& request, std::size_t place) {
  return {.low = static_cast<std::uint64_t>(request.block_keys(static_cast<int>(place)))};
}

template <class Response, class Outcome>
answer_writer writer_of(Outcome&& outcome) {
  if (outcome) return std::move(*outcome);
  return refusal_answer<Response>(std::move(outcome.error()));
}

template <class Response>
outcome_receiver<void> plain_receiver(answer_receiver receive) {
  return [receive = std::move(receive)](rpc_outcome<> outcome) {
    receive(outcome ? response_answer(Response{}) : refusal_answer<Response>(std::move(outcome.error())));
  };
}

}  // namespace

template <class Request>
rpc_outcome<std::vector<cache_key>> meta_calls::asked_keys(const Request& request, const instance_terms& terms) {
  auto keys = keys_of(request, terms.block_tokens, limits_);
  if (keys) key_count_ += keys->size();
  return keys;
}

rpc_outcome<meta_calls::instance_pointer> meta_calls::instance_of(const std::string& id, const call_rights& rights) {
  const auto& view = views_.view();
  const auto found = view->instances.find(id);
  if (found == view->instances.end() || !rights.may_see(found->second->terms().group)) {
    if (!view->is_ready) return refuse(answer_code::service_not_ready, "the manager recovers; ask again");
    if (id.empty())
      return refuse(answer_code::invalid_argument, "instance_id is empty; the id of an instance is needed");
    return refuse_instance(id);
  }
  return found->second;
}

read_order meta_calls::order_of(const served_instance& instance, read_choice choice, std::optional<storage_type> type) {
  std::vector<std::pair<double, std::uint8_t>> drawn;
  const auto& candidates = instance.group().candidates;
  for (std::size_t i = 0; i < most_storages; ++i) {
    const auto& storage = instance.storages()[i];
    if (storage == nullptr || !storage->is_readable() || storage->terms->read_weight == 0) continue;
    if (type && storage->terms->type != *type) continue;
    double place = 0;
    if (choice == read_choice::first) {
      place = static_cast<double>(std::ranges::find(candidates, storage->terms->name) - candidates.begin());
    } else {
      const double uniform = std::uniform_real_distribution<double>(1e-12, 1)(dice());
      place = -std::log(uniform) / storage->terms->read_weight;
    }
    drawn.emplace_back(place, static_cast<std::uint8_t>(i));
  }
  std::ranges::sort(drawn);
  read_order order;
  order.rank.fill(read_order::unusable);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    order.rank[drawn[i].second] = static_cast<std::uint8_t>(std::min<std::size_t>(i, read_order::unusable - 1));
  }
  return order;
}

rpc_outcome<std::uint64_t> meta_calls::asked_specs(const instance_terms& terms,
                                                   const google::protobuf::RepeatedPtrField<std::string>& names) {
  if (names.empty()) return terms.all_specs;
  std::uint64_t specs = 0;
  for (const std::string& name : names) {
    const auto spec = terms.find_spec(name);
    if (!spec) {
      return refuse(answer_code::invalid_argument,
                    "location_spec_names has '" + name + "', which instance " + terms.id + " does not have");
    }
    specs |= std::uint64_t{1} << *spec;
  }
  return specs;
}

void meta_calls::note_uses(const served_instance& instance, std::size_t key_count) {
  std::vector<std::uint32_t> records;
  records.reserve(lookup_.keys.size());
  for (const found_key& key : lookup_.keys) {
    if (key.parts != 0) records.push_back(key.record);
  }
  note_uses(instance, key_count, std::move(records));
}

void meta_calls::note_uses(const served_instance& instance, std::size_t key_count, std::vector<std::uint32_t> records) {
  counts_.note_lookup(key_count, records.size());
  if (!records.empty()) writer_.uses().add(instance.terms().number, std::move(records));
}

rpc_outcome<std::size_t> meta_calls::find(const served_instance& instance, query_kind kind,
                                          std::span<const cache_key> keys, std::int64_t window) {
  const read_order order = order_of(instance);
  switch (kind) {
    case query_kind::batch: instance.index().read_each(keys, order, lookup_); return 0;
    case query_kind::window: {
      if (window < 1 || static_cast<std::uint64_t>(window) > keys.size()) {
        return refuse(answer_code::invalid_argument, "sw_size is " + std::to_string(window) + "; right would be 1 to " +
                                                         std::to_string(keys.size()) + ", the number of keys");
      }
      const auto begin = instance.index().match_window(keys, static_cast<std::size_t>(window), order, lookup_);
      return begin.value_or(keys.size());
    }
    case query_kind::prefix_with_mamba:
      (void)instance.index().match_prefix(
          keys, order, {.all = instance.terms().common_specs, .last = instance.terms().all_specs}, lookup_);
      return 0;
    default: (void)instance.index().match_prefix(keys, order, {}, lookup_); return 0;
  }
}

rpc_outcome<answer_writer> meta_calls::get_location(const meta::GetCacheLocationRequest& request,
                                                    const call_rights& rights) {
  const auto instance = instance_of(request.instance_id(), rights);
  if (!instance) return std::unexpected(instance.error());
  const auto kind = kind_of(request.query_type(), (*instance)->terms());
  if (!kind) return std::unexpected(kind.error());
  const auto specs = asked_specs((*instance)->terms(), request.location_spec_names());
  if (!specs) return std::unexpected(specs.error());
  if (*kind == query_kind::prefix && request.block_mask().info_case() == proto::BlockMask::INFO_NOT_SET &&
      trace_ == nullptr) {
    if (const auto hits = short_prefix(**instance, request)) {
      note_uses(**instance, static_cast<std::size_t>(request.block_keys_size()));
      std::vector<cache_key> keys;
      for (std::size_t i = 0; i < *hits; ++i) keys.push_back(block_key(request, i));
      return location_writer(*instance, std::move(keys), *specs, 0, *hits);
    }
  }
  auto keys = asked_keys(request, (*instance)->terms());
  const bool is_prefix = *kind == query_kind::prefix || *kind == query_kind::prefix_with_mamba;
  if (keys && is_prefix) keys = unmasked(std::move(*keys), request.block_mask());
  if (!keys) return std::unexpected(keys.error());
  const std::size_t count = keys->size();
  if (trace_ != nullptr) trace_->note_lookup(request.instance_id(), *kind, request.sw_size(), *keys);
  const auto begin = find(**instance, *kind, *keys, request.sw_size());
  if (!begin) return std::unexpected(begin.error());
  note_uses(**instance, count);
  return location_writer(*instance, std::move(*keys), *specs, *begin, is_prefix ? lookup_.keys.size() : count);
}

/// The list is written before this object answers anything else.
answer_writer meta_calls::location_writer(instance_pointer instance, std::vector<cache_key> keys, std::uint64_t specs,
                                          std::size_t begin, std::size_t count) const {
  return [this, instance = std::move(instance), keys = std::move(keys), specs, begin, count](answer_form form,
                                                                                             std::string& out) {
    append_locations(
        {.instance = *instance, .answer = lookup_, .keys = keys, .specs = specs, .begin = begin, .count = count}, form,
        out);
  };
}

template <class Request>
std::optional<std::size_t> meta_calls::short_prefix(const served_instance& instance, const Request& request) {
  std::array<cache_key, 32> keys;
  const auto count = static_cast<std::size_t>(request.block_keys_size());
  if (count < 2 * keys.size() || count > limits_.keys) return std::nullopt;
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = block_key(request, i);
  const std::size_t hits = instance.index().match_prefix(keys, order_of(instance), {}, lookup_);
  if (hits == keys.size()) return std::nullopt;
  key_count_ += count;
  return hits;
}

rpc_outcome<answer_writer> meta_calls::get_length(const meta::GetCacheLocationLenRequest& request,
                                                  const call_rights& rights) {
  const auto instance = instance_of(request.instance_id(), rights);
  if (!instance) return std::unexpected(instance.error());
  const auto kind = kind_of(request.query_type(), (*instance)->terms());
  if (!kind) return std::unexpected(kind.error());
  meta::GetCacheLocationLenResponse response;
  if (*kind == query_kind::prefix) {
    if (const auto hits = short_prefix(**instance, request)) {
      note_uses(**instance, static_cast<std::size_t>(request.block_keys_size()));
      response.set_cache_location_len(static_cast<std::int64_t>(*hits));
      return response_answer(std::move(response));
    }
  }
  auto keys = asked_keys(request, (*instance)->terms());
  if (!keys) return std::unexpected(keys.error());
  if (*kind == query_kind::prefix) {
    std::vector<std::uint32_t> records;
    const std::size_t hits = (*instance)->index().count_prefix(*keys, order_of(**instance), {}, records);
    note_uses(**instance, keys->size(), std::move(records));
    response.set_cache_location_len(static_cast<std::int64_t>(hits));
    return response_answer(std::move(response));
  }
  const auto begin = find(**instance, *kind, *keys, request.sw_size());
  if (!begin) return std::unexpected(begin.error());
  note_uses(**instance, keys->size());
  response.set_cache_location_len(
      std::ranges::count_if(lookup_.keys, [](const found_key& key) { return key.parts != 0; }));
  return response_answer(std::move(response));
}

/// A V6D strategy is that of a storage which no manager of this kind has; the manager's own order stands for it.
rpc_outcome<meta_calls::type_choices> meta_calls::backend_parts(
    const served_instance& instance, const meta::GetCacheLocationsByBackendRequest& request) const {
  type_choices parts;
  const auto add = [&](storage_type type, read_choice choice) {
    if (std::ranges::find(parts, type, &type_choice::first) == parts.end()) parts.emplace_back(type, choice);
  };
  for (const auto& selector : request.backend_selectors()) {
    const auto type = storage_type_of(selector.backend_type());
    if (!type || *type == storage_type::unspecified) {
      return refuse(answer_code::invalid_argument, "backend_selectors has a backend_type that is none");
    }
    if (!meta::LocationSelectStrategy_IsValid(selector.strategy())) {
      return refuse(answer_code::invalid_argument,
                    "backend_selectors has a strategy that is none; right would be 0 to 3");
    }
    add(*type, selector.strategy() == meta::LSS_WEIGHTED_RANDOM ? read_choice::weighted : choice_);
  }
  if (!parts.empty()) return parts;
  const read_order order = order_of(instance);
  std::vector<std::pair<std::uint8_t, storage_type>> types;
  for (std::size_t i = 0; i < most_storages; ++i) {
    if (order.rank[i] != read_order::unusable) types.emplace_back(order.rank[i], instance.storages()[i]->terms->type);
  }
  std::ranges::sort(types);
  for (const auto& [rank, type] : types) add(type, choice_);
  return parts;
}

rpc_outcome<answer_writer> meta_calls::get_by_backend(const meta::GetCacheLocationsByBackendRequest& request,
                                                      const call_rights& rights) {
  const auto instance = instance_of(request.instance_id(), rights);
  if (!instance) return std::unexpected(instance.error());
  const auto specs = asked_specs((*instance)->terms(), request.location_spec_names());
  if (!specs) return std::unexpected(specs.error());
  const auto kind = kind_of(request.query_type(), (*instance)->terms());
  if (!kind) return std::unexpected(kind.error());
  if (request.query_type() != proto::QT_UNSPECIFIED && *kind != query_kind::batch) {
    return refuse(answer_code::invalid_argument,
                  "query_type is " + name_text(*kind) + "; locations by backend are a QT_BATCH_GET");
  }
  const auto parts = backend_parts(**instance, request);
  if (!parts) return std::unexpected(parts.error());
  const auto keys = asked_keys(request, (*instance)->terms());
  if (!keys) return std::unexpected(keys.error());
  meta::GetCacheLocationsByBackendResponse response;
  for (std::size_t i = 0; i < keys->size(); ++i) response.add_key_locations();
  std::vector<std::uint32_t> records(keys->size(), no_record);
  for (const auto& [type, choice] : *parts) {
    (*instance)->index().read_each(*keys, order_of(**instance, choice, type), lookup_);
    add_locations({.instance = **instance, .answer = lookup_, .keys = *keys, .specs = *specs}, type, response);
    for (std::size_t i = 0; i < keys->size(); ++i) {
      if (lookup_.keys[i].parts != 0) records[i] = lookup_.keys[i].record;
    }
  }
  std::erase(records, no_record);
  note_uses(**instance, keys->size(), std::move(records));
  return response_answer(std::move(response));
}

rpc_outcome<answer_writer> meta_calls::get_meta(const proto::GetCacheMetaRequest& request, const call_rights& rights) {
  const auto instance = instance_of(request.instance_id(), rights);
  if (!instance) return std::unexpected(instance.error());
  auto keys = asked_keys(request, (*instance)->terms());
  if (keys) keys = unmasked(std::move(*keys), request.block_mask());
  if (!keys) return std::unexpected(keys.error());
  return response_answer(states_of_keys(**instance, *keys));
}

rpc_outcome<answer_writer> meta_calls::get_instance(const proto::GetInstanceInfoRequest& request,
                                                    const call_rights& rights) {
  const auto instance = instance_of(request.instance_id(), rights);
  if (!instance) return std::unexpected(instance.error());
  meta::GetInstanceInfoResponse response;
  response.set_instance_group((*instance)->terms().group);
  if (const auto entry = views_.view()->settings.find_instance(request.instance_id()); entry != nullptr) {
    *response.mutable_instance_info() = entry->info;
  }
  return response_answer(std::move(response));
}

void meta_calls::register_instance(proto::RegisterInstanceRequest request, const call_rights& rights,
                                   answer_receiver receive) {
  using response = meta::RegisterInstanceResponse;
  if (!rights.may_see(request.instance_group())) {
    return receive(refusal_answer<response>(
        {.code = answer_code::not_found, .message = "there is no instance group " + request.instance_group()}));
  }
  const std::string group = request.instance_group();
  auto edit = [request = std::move(request)](const change_basis& basis) {
    return basis.settings.register_instance(request);
  };
  writer_.post(std::make_unique<registry_command>(
      std::move(edit), [&writer = writer_, group, receive = std::move(receive)](rpc_outcome<std::string> outcome) {
        if (!outcome) return receive(refusal_answer<response>(std::move(outcome.error())));
        const auto view = writer.views().take();
        response answer;
        if (const auto entry = view->settings.find_group(group); entry != nullptr) {
          storage_set available;
          for (std::size_t i = 0; i < most_storages; ++i) {
            const auto& storage = (*view->storages)[i];
            available[i] = storage != nullptr && storage->is_readable();
          }
          answer.set_storage_configs(storage_configs(view->settings, entry->terms, available));
          answer.set_extra_info(entry->group.extra_info());
        }
        receive(response_answer(std::move(answer), std::move(*outcome)));
      }));
}

void meta_calls::start_write(const meta::StartWriteCacheRequest& request, const call_rights& rights,
                             answer_receiver receive) {
  using response = meta::StartWriteCacheResponse;
  const auto instance = instance_of(request.instance_id(), rights);
  if (!instance) return receive(refusal_answer<response>(instance.error()));
  auto keys = asked_keys(request, (*instance)->terms());
  if (!keys) return receive(refusal_answer<response>(keys.error()));
  if (request.is_replication()) {
    return receive(refusal_answer<response>(
        {.code = answer_code::unsupported, .message = "replication is not built; leave is_replication out"}));
  }
  auto note = trace_ == nullptr ? call_trace::start_note{} : trace_->start_of(request.instance_id(), *keys);
  start_request start{
      .instance = request.instance_id(),
      .keys = std::move(*keys),
      .groups = {request.location_spec_group_names().begin(), request.location_spec_group_names().end()},
      .timeout_s = request.write_timeout_seconds(),
      .replicas = request.min_replica_count()};
  writer_.post(std::make_unique<manager::start_write>(
      std::move(start),
      [&writer = writer_, note = std::move(note), receive = std::move(receive)](rpc_outcome<start_grant> outcome) {
        if (!outcome) return receive(refusal_answer<response>(std::move(outcome.error())));
        if (note) note(outcome->session);
        auto grant = std::make_shared<const start_grant>(std::move(*outcome));
        const auto view = writer.views().take();  // the one that has the storage
        const auto found = view->instances.find(grant->instance->id);
        if (found == view->instances.end()) {
          const auto refused = refuse_instance(grant->instance->id);
          return receive(refusal_answer<response>(refused.error()));
        }
        receive([instance = found->second, grant](answer_form form, std::string& out) {
          append_grant(*instance, *grant, form, out);
        });
      }));
}

void meta_calls::finish_write(const meta::FinishWriteCacheRequest& request, const call_rights& rights,
                              answer_receiver receive) {
  if (const auto instance = instance_of(request.instance_id(), rights); !instance) {
    return receive(refusal_answer<meta::CommonResponse>(instance.error()));
  }
  if (!request.has_success_blocks()) {
    return receive(refusal_answer<meta::CommonResponse>(
        {.code = answer_code::invalid_argument,
         .message = "success_blocks is missing; right would be an offset, or a bool for each granted block"}));
  }
  finish_request finish{.instance = request.instance_id(),
                        .session = request.write_session_id(),
                        .success = mask_of(request.success_blocks()),
                        .checksums = {request.checksums().begin(), request.checksums().end()}};
  const auto answer = plain_receiver<meta::CommonResponse>(std::move(receive));
  auto note = trace_ == nullptr ? std::function<void()>() : trace_->finish_of(request);
  writer_.post(std::make_unique<manager::finish_write>(std::move(finish),
                                                       [answer, note = std::move(note)](rpc_outcome<> outcome) {
                                                         if (outcome && note) note();
                                                         answer(std::move(outcome));
                                                       }));
}

void meta_calls::remove(const proto::RemoveCacheRequest& request, const call_rights& rights, answer_receiver receive) {
  const auto instance = instance_of(request.instance_id(), rights);
  if (!instance) return receive(refusal_answer<meta::CommonResponse>(instance.error()));
  auto keys = asked_keys(request, (*instance)->terms());
  if (!keys) return receive(refusal_answer<meta::CommonResponse>(keys.error()));
  remove_request removal{
      .instance = request.instance_id(), .keys = std::move(*keys), .spared = mask_of(request.block_mask())};
  writer_.post(
      std::make_unique<remove_keys>(std::move(removal), plain_receiver<meta::CommonResponse>(std::move(receive))));
}

void meta_calls::trim(const meta::TrimCacheRequest& request, const call_rights& rights, answer_receiver receive) {
  const auto refuse_with = [&](answer_code code, std::string message) {
    receive(refusal_answer<meta::CommonResponse>({.code = code, .message = std::move(message)}));
  };
  if (const auto instance = instance_of(request.instance_id(), rights); !instance) {
    return refuse_with(instance.error().code, instance.error().message);
  }
  trim_request trim{.instance = request.instance_id()};
  switch (request.strategy()) {
    case meta::TS_REMOVE_ALL_CACHE: break;
    case meta::TS_REMOVE_ALL_META: trim.scope = trim_scope::records; break;
    case meta::TS_TIMESTAMP:
      if (request.begin_timestamp() < 0 || request.end_timestamp() < request.begin_timestamp()) {
        return refuse_with(answer_code::invalid_argument,
                           "end_timestamp is before begin_timestamp, or one of them is negative; right would be Unix "
                           "seconds in their order");
      }
      trim.scope = trim_scope::period;
      trim.begin = static_cast<std::uint32_t>(request.begin_timestamp());
      trim.end = static_cast<std::uint32_t>(request.end_timestamp());
      break;
    default:
      return refuse_with(answer_code::invalid_argument,
                         "strategy is " + std::to_string(request.strategy()) + "; right would be 1 to 3");
  }
  writer_.post(
      std::make_unique<trim_instance>(std::move(trim), plain_receiver<meta::CommonResponse>(std::move(receive))));
}

std::expected<void, body_fault> meta_calls::call(enum rpc name, const call_body& body, const call_rights& rights,
                                                 answer_receiver receive) {
  switch (name) {
    case rpc::get_cache_location:
      return with_request<meta::GetCacheLocationRequest>(body, [&](auto&& request) {
        receive(writer_of<meta::GetCacheLocationResponse>(get_location(request, rights)));
      });
    case rpc::get_cache_location_len:
      return with_request<meta::GetCacheLocationLenRequest>(body, [&](auto&& request) {
        receive(writer_of<meta::GetCacheLocationLenResponse>(get_length(request, rights)));
      });
    case rpc::get_cache_locations_by_backend:
      return with_request<meta::GetCacheLocationsByBackendRequest>(body, [&](auto&& request) {
        receive(writer_of<meta::GetCacheLocationsByBackendResponse>(get_by_backend(request, rights)));
      });
    case rpc::get_cache_meta:
    case rpc::admin_get_cache_meta:
      return with_request<proto::GetCacheMetaRequest>(
          body, [&](auto&& request) { receive(writer_of<meta::GetCacheMetaResponse>(get_meta(request, rights))); });
    case rpc::get_instance_info:
      return with_request<proto::GetInstanceInfoRequest>(body, [&](auto&& request) {
        receive(writer_of<meta::GetInstanceInfoResponse>(get_instance(request, rights)));
      });
    case rpc::register_instance:
      return with_request<proto::RegisterInstanceRequest>(body, [&](auto&& request) {
        register_instance(std::forward<decltype(request)>(request), rights, std::move(receive));
      });
    case rpc::start_write_cache:
      return with_request<meta::StartWriteCacheRequest>(
          body, [&](auto&& request) { start_write(request, rights, std::move(receive)); });
    case rpc::finish_write_cache:
      return with_request<meta::FinishWriteCacheRequest>(
          body, [&](auto&& request) { finish_write(request, rights, std::move(receive)); });
    case rpc::remove_cache:
    case rpc::admin_remove_cache:
      return with_request<proto::RemoveCacheRequest>(
          body, [&](auto&& request) { remove(request, rights, std::move(receive)); });
    case rpc::trim_cache:
      return with_request<meta::TrimCacheRequest>(body,
                                                  [&](auto&& request) { trim(request, rights, std::move(receive)); });
    default:
      find_trace_id(body);
      receive(refusal_answer<meta::CommonResponse>(
          {.code = answer_code::unsupported, .message = std::string(row_of(name).name) + " is not built"}));
      return {};
  }
}

}  // namespace cenote::manager
