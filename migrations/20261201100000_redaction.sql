-- What views show of payloads, results and the texts made from them, where a type's policy has `redact` paths. Whatever reads for
-- people reads through these functions; those who run jobs read the columns.

create function jobdeck.redaction_mark() returns text
language sql immutable parallel safe as $$
  select '••••••'
$$;
comment on function jobdeck.redaction_mark is 'What stands in the place of a hidden value.';

create function jobdeck.redacted_at(value jsonb, names text[]) returns jsonb
language plpgsql immutable parallel safe as $$
begin
  if cardinality(names) = 0 then
    return to_jsonb(jobdeck.redaction_mark());
  end if;
  case jsonb_typeof(value)
    when 'object' then
      if value ? names[1] then
        return jsonb_set(value, names[1:1], jobdeck.redacted_at(value -> names[1], names[2:]));
      end if;
    when 'array' then
      return (select coalesce(jsonb_agg(jobdeck.redacted_at(item.value, names) order by item.place), '[]')
        from jsonb_array_elements(value) with ordinality as item (value, place));
    else
  end case;
  return value;
end
$$;
comment on function jobdeck.redacted_at is 'A value with the mark in the place of what stands below these names. Used by redacted.';

create function jobdeck.redacted(value jsonb, paths text[]) returns jsonb
language plpgsql immutable parallel safe as $$
declare
  path text;
begin
  foreach path in array paths loop
    value := jobdeck.redacted_at(value, string_to_array(path, '.'));
  end loop;
  return value;
end
$$;
comment on function jobdeck.redacted is
  'A JSON value with the mark in the place of all that stands at these dotted paths. Unlike payload_at they go on through lists: a path hides what it names in each item.';

create function jobdeck.secrets_of(payload jsonb, paths text[]) returns text[]
language sql immutable parallel safe as $$
  -- The longest first, so that one that holds another goes as a whole.
  select coalesce(array_agg(s.secret order by length(s.secret) desc, s.secret), '{}') from (
    select distinct f.found #>> '{}' as secret
    from unnest(paths) as p (path)
    cross join lateral (
      -- Each name is looked for in lists of lists as well; a value that is no list counts as a list of itself.
      select ('$' || string_agg('.' || to_json(n.name)::text || '[*][*][*][*]', '' order by n.place) || '.**')::jsonpath as route
      from unnest(string_to_array(p.path, '.')) with ordinality as n (name, place)) r
    cross join lateral jsonb_path_query(payload, r.route) as f (found)
    where (jsonb_typeof(f.found) = 'string' and length(f.found #>> '{}') >= 4)
      or (jsonb_typeof(f.found) = 'number' and length(f.found #>> '{}') >= 6)) s
$$;
comment on function jobdeck.secrets_of is
  'The texts of four characters or more and the numbers of six digits or more at these paths and below: what is looked for where a handler may have quoted it. Shorter ones would be found everywhere.';

create function jobdeck.without_secrets(content text, secrets text[]) returns text
language plpgsql immutable strict parallel safe as $$
declare
  secret text;
begin
  -- Each is looked for in the whole text: a list without end hides the text instead of holding up the reader.
  if cardinality(secrets) > 1000 then
    return jobdeck.redaction_mark();
  end if;
  foreach secret in array secrets loop
    content := replace(content, secret, jobdeck.redaction_mark());
    -- As JSON and programs' debug output write it.
    content := replace(content, substr(to_json(secret)::text, 2, length(to_json(secret)::text) - 2), jobdeck.redaction_mark());
  end loop;
  return content;
end
$$;
comment on function jobdeck.without_secrets(text, text[]) is 'A text with the mark in the place of each of these, or the mark alone where they are more than 1,000.';

create function jobdeck.without_secrets(value jsonb, secrets text[]) returns jsonb
language plpgsql immutable strict parallel safe as $$
begin
  return case jsonb_typeof(value)
    when 'string' then to_jsonb(jobdeck.without_secrets(value #>> '{}', secrets))
    when 'number' then case when value #>> '{}' = any (secrets) then to_jsonb(jobdeck.redaction_mark()) else value end
    when 'array' then (select coalesce(jsonb_agg(jobdeck.without_secrets(item.value, secrets) order by item.place), '[]')
      from jsonb_array_elements(value) with ordinality as item (value, place))
    when 'object' then (select coalesce(jsonb_object_agg(jobdeck.without_secrets(field.key, secrets), jobdeck.without_secrets(field.value, secrets)), '{}')
      from jsonb_each(value) as field (key, value))
    else value end;
end
$$;
comment on function jobdeck.without_secrets(jsonb, text[]) is 'A JSON value with the mark in the place of each of these, wherever its texts quote one.';

create function jobdeck.visible_key(key text, key_fields text[], payload jsonb, paths text[]) returns text
language sql immutable parallel safe as $$
  select case when exists (
      select from unnest(key_fields) as f (field) cross join unnest(paths) as p (path)
      where f.field = p.path or starts_with(f.field, p.path || '.'))
    then case when key is not null then jobdeck.redaction_mark() end
    else jobdeck.without_secrets(key, jobdeck.secrets_of(payload, paths)) end
$$;
comment on function jobdeck.visible_key is 'An idempotency key as views show it: hidden when a hidden value is a part of it.';

create function jobdeck.visibly_contains(job_id uuid, pattern text) returns boolean
language sql stable parallel safe as $$
  select coalesce(bool_or(
    jobdeck.visible_key(j.idempotency_key, t.key_fields, j.payload, t.redact) ilike pattern
    or jobdeck.payload_preview(jobdeck.redacted(j.payload, t.redact)) ilike pattern
    or jobdeck.without_secrets(j.last_error, jobdeck.secrets_of(j.payload, t.redact)) ilike pattern), false)
  from jobdeck.jobs j join jobdeck.job_types t on t.type = j.type
  where j.id = job_id
$$;
comment on function jobdeck.visibly_contains is
  'Whether a search finds a job by what views show of its key, its preview and its error. Asked for types with hidden values only, and only once the columns themselves match.';
