#pragma once
// Checks that our XML is well-formed, and returns its elements, attributes and text. It supports no
// namespaces, comments, doctypes or CDATA sections, since we write none.

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace vdnn::testing {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // without the text of inner elements

  // Returns the attribute's value; empty if the attribute is absent.
  std::string attribute(const std::string& key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? "" : found->second;
  }
};

class XmlReader {
 public:
  // Returns all elements in the order of their start tags. Throws std::invalid_argument unless the text is
  // one element, all tags close in order, every `&` begins an entity, and no element repeats a key.
  static std::vector<XmlElement> read(std::string_view text) {
    XmlReader reader(text);
    reader.skip_declaration();
    reader.skip_space();
    reader.read_element();
    reader.skip_space();
    if (!reader.text_.empty()) {
      throw std::invalid_argument("XML: something follows the end");
    }
    return reader.elements_;
  }

 private:
  explicit XmlReader(std::string_view text) : text_(text) {}

  bool next_is(std::string_view what) const { return text_.starts_with(what); }
  void expect(std::string_view what) {
    if (!next_is(what)) {
      throw std::invalid_argument("XML: '" + std::string(what) + "' is wanted before '" +
                                  std::string(text_.substr(0, 40)) + "'");
    }
    text_.remove_prefix(what.size());
  }
  void skip_space() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_.front())) != 0) {
      text_.remove_prefix(1);
    }
  }
  void skip_declaration() {
    if (next_is("<?xml ")) {
      text_.remove_prefix(std::min(text_.find("?>"), text_.size()));
      expect("?>");
    }
  }
  std::string read_name() {
    std::size_t length = 0;
    while (length < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[length])) != 0 || text_[length] == '-')) {
      ++length;
    }
    if (length == 0 || std::isalpha(static_cast<unsigned char>(text_.front())) == 0) {
      throw std::invalid_argument("XML: a name is wanted before '" + std::string(text_.substr(0, 40)) + "'");
    }
    std::string name(text_.substr(0, length));
    text_.remove_prefix(length);
    return name;
  }
  // Reads up to one of `ends` and resolves entities.
  std::string read_text(std::string_view ends) {
    static const std::map<std::string, char> entities{
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    std::string result;
    while (!text_.empty() && ends.find(text_.front()) == std::string_view::npos) {
      if (text_.front() == '<') {
        throw std::invalid_argument("XML: '<' in an attribute");
      }
      if (text_.front() == '&') {
        const std::string entity(text_.substr(0, text_.find(';') + 1));
        if (!entities.contains(entity)) {
          throw std::invalid_argument("XML: no entity '" + entity + "'");
        }
        result += entities.at(entity);
        text_.remove_prefix(entity.size());
      } else {
        result += text_.front();
        text_.remove_prefix(1);
      }
    }
    return result;
  }
  void read_attributes(std::map<std::string, std::string>& attributes) {
    for (skip_space(); !next_is(">") && !next_is("/>"); skip_space()) {
      const std::string key = read_name();
      expect("=\"");
      if (!attributes.emplace(key, read_text("\"")).second) {
        throw std::invalid_argument("XML: '" + key + "' is there twice");
      }
      expect("\"");
    }
  }
  void read_element() {
    expect("<");
    const std::size_t index = elements_.size();
    elements_.push_back({.name = read_name(), .attributes = {}, .text = {}});
    read_attributes(elements_[index].attributes);
    if (next_is("/>")) {
      expect("/>");
      return;
    }
    expect(">");
    elements_[index].text += read_text("<");
    while (!next_is("</")) {
      read_element();
      elements_[index].text += read_text("<");
    }
    expect("</" + elements_[index].name + ">");
  }

  std::string_view text_;
  std::vector<XmlElement> elements_;
};

}  // namespace vdnn::testing
