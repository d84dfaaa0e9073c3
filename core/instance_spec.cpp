#include "core/instance_spec.hpp"

#include <algorithm>
#include <utility>

#include "core/text.hpp"

namespace cenote {

namespace {

result<void> require(std::string_view what, std::string_view name) {
  if (name.empty()) return fail(error_code::invalid_argument, std::string(what) + " must not be empty");
  return {};
}

result<void> check_group(const group_spec& group) {
  if (auto named = require("group name", group.name); !named) return named;
  const std::string where = "group `" + group.name + "`";
  if (group.parts.empty()) return fail(error_code::invalid_argument, where + " has no parts");
  if (group.parts.size() > max_parts) {
    return fail(error_code::invalid_argument, where + " has " + std::to_string(group.parts.size()) +
                                                  " parts; at most " + std::to_string(max_parts) + " are allowed");
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < group.parts.size(); ++i) {
    const part_spec& part = group.parts[i];
    if (auto named = require("part name", part.name); !named) return named;
    if (part.bytes == 0 || part.bytes > max_block_bytes) {
      return fail(error_code::invalid_argument, where + ", part `" + part.name + "`: " + std::to_string(part.bytes) +
                                                    " bytes; a part has 1 byte to 1 GiB");
    }
    total += part.bytes;
    const auto same = [&](const part_spec& other) { return other.name == part.name; };
    if (std::any_of(group.parts.begin(), group.parts.begin() + static_cast<std::ptrdiff_t>(i), same)) {
      return fail(error_code::invalid_argument, where + " declares part `" + part.name + "` twice");
    }
  }
  if (total > max_block_bytes) {
    return fail(error_code::invalid_argument,
                where + ": a block of " + std::to_string(total) + " bytes is larger than 1 GiB, the largest slab");
  }
  return {};
}

/// What does not depend on the characters of names.
result<void> check_shape(const instance_spec& spec) {
  if (auto ok = require("instance id", spec.id); !ok) return ok;
  if (spec.tokens_per_block == 0 || spec.tokens_per_block > (1U << 20)) {
    return fail(error_code::invalid_argument,
                "tokens_per_block is " + std::to_string(spec.tokens_per_block) + "; it must be 1 to 1048576");
  }
  if (spec.groups.empty() || spec.groups.size() > max_groups) {
    return fail(error_code::invalid_argument, "an instance has 1 to " + std::to_string(max_groups) + " groups, not " +
                                                  std::to_string(spec.groups.size()));
  }
  for (std::size_t i = 0; i < spec.groups.size(); ++i) {
    if (auto ok = check_group(spec.groups[i]); !ok) return ok;
    if (spec.find_group(spec.groups[i].name) != i) {
      return fail(error_code::invalid_argument, "group `" + spec.groups[i].name + "` is declared twice");
    }
  }
  return {};
}

result<void> check_names(const instance_spec& spec) {
  const std::pair<std::string_view, const std::string*> fields[] = {{"instance id", &spec.id},
                                                                    {"model", &spec.model},
                                                                    {"dtype", &spec.dtype},
                                                                    {"layout", &spec.layout},
                                                                    {"hash_scheme", &spec.hash_scheme},
                                                                    {"fingerprint", &spec.fingerprint},
                                                                    {"instance_group", &spec.instance_group}};
  for (const auto& [what, name] : fields) {
    if (auto ok = check_name(what, *name, max_name_bytes); !ok) return ok;
  }
  for (const group_spec& group : spec.groups) {
    if (auto ok = check_name("group name", group.name, max_name_bytes); !ok) return ok;
    for (const part_spec& part : group.parts) {
      if (auto ok = check_name("part name", part.name, max_name_bytes); !ok) return ok;
    }
  }
  return {};
}

std::string list_parts(const group_spec& group) {
  std::string text;
  for (const part_spec& part : group.parts) {
    if (!text.empty()) text += ", ";
    text += part.name + "=" + std::to_string(part.bytes);
  }
  return text;
}

std::string list_groups(const instance_spec& spec) {
  std::string text;
  for (const group_spec& group : spec.groups) text += (text.empty() ? "" : ", ") + group.name;
  return text;
}

std::string differs(std::string_view field, std::string_view have, std::string_view want) {
  std::string text(field);
  return text.append(": the instance has `").append(have).append("`, this spec says `").append(want).append("`");
}

}  // namespace

std::uint64_t group_spec::block_bytes() const noexcept {
  std::uint64_t total = 0;
  for (const part_spec& part : parts) total += part.bytes;
  return total;
}

std::uint64_t group_spec::stride() const noexcept {
  return (block_bytes() + block_alignment - 1) / block_alignment * block_alignment;
}

std::uint64_t group_spec::all_parts() const noexcept {
  return parts.size() >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << parts.size()) - 1;
}

std::uint64_t group_spec::part_offset(std::size_t index) const noexcept {
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < index; ++i) offset += parts[i].bytes;
  return offset;
}

std::optional<std::uint32_t> instance_spec::find_group(std::string_view name) const noexcept {
  for (std::uint32_t i = 0; i < groups.size(); ++i) {
    if (groups[i].name == name) return i;
  }
  return std::nullopt;
}

result<void> validate(const instance_spec& spec) {
  if (auto ok = check_shape(spec); !ok) return ok;
  return check_names(spec);
}

std::optional<std::string> first_difference(const instance_spec& have, const instance_spec& want) {
  if (have.model != want.model) return differs("model", have.model, want.model);
  if (have.dtype != want.dtype) return differs("dtype", have.dtype, want.dtype);
  if (have.layout != want.layout) return differs("layout", have.layout, want.layout);
  if (have.tokens_per_block != want.tokens_per_block) {
    return differs("tokens_per_block", std::to_string(have.tokens_per_block), std::to_string(want.tokens_per_block));
  }
  if (have.hash_scheme != want.hash_scheme) return differs("hash_scheme", have.hash_scheme, want.hash_scheme);
  if (have.fingerprint != want.fingerprint) return differs("fingerprint", have.fingerprint, want.fingerprint);
  if (have.instance_group != want.instance_group) {
    return differs("instance_group", have.instance_group, want.instance_group);
  }
  if (list_groups(have) != list_groups(want)) return differs("groups", list_groups(have), list_groups(want));
  for (std::size_t i = 0; i < have.groups.size(); ++i) {
    if (have.groups[i].parts != want.groups[i].parts) {
      return differs("groups." + have.groups[i].name + ".parts", list_parts(have.groups[i]),
                     list_parts(want.groups[i]));
    }
  }
  return std::nullopt;
}

void encode(byte_writer& out, const instance_spec& spec) {
  for (const std::string* text :
       {&spec.id, &spec.model, &spec.dtype, &spec.layout, &spec.hash_scheme, &spec.fingerprint, &spec.instance_group}) {
    out.put_text(*text);
  }
  out.put(spec.tokens_per_block);
  out.put(static_cast<std::uint32_t>(spec.groups.size()));
  for (const group_spec& group : spec.groups) {
    out.put_text(group.name);
    out.put(static_cast<std::uint32_t>(group.parts.size()));
    for (const part_spec& part : group.parts) {
      out.put_text(part.name);
      out.put(part.bytes);
    }
  }
}

result<instance_spec> decode_instance_spec(byte_reader& reader) {
  instance_spec spec;
  for (std::string* text :
       {&spec.id, &spec.model, &spec.dtype, &spec.layout, &spec.hash_scheme, &spec.fingerprint, &spec.instance_group}) {
    *text = reader.get_text();
  }
  spec.tokens_per_block = reader.get<std::uint32_t>();
  const auto groups = reader.get<std::uint32_t>();
  for (std::uint32_t g = 0; g < groups && g <= max_groups && reader.ok(); ++g) {
    group_spec group;
    group.name = reader.get_text();
    const auto parts = reader.get<std::uint32_t>();
    for (std::uint32_t p = 0; p < parts && p <= max_parts && reader.ok(); ++p) {
      part_spec part;
      part.name = reader.get_text();
      part.bytes = reader.get<std::uint64_t>();
      group.parts.push_back(std::move(part));
    }
    spec.groups.push_back(std::move(group));
  }
  if (!reader.ok()) return fail(error_code::malformed, "the instance spec ends early");
  if (auto ok = check_shape(spec); !ok) return std::unexpected(ok.error());
  return spec;
}

}  // namespace cenote
